"""`python -m swell` is `swell`."""

from swell.cli.entry import main

if __name__ == "__main__":
    main()
