"""`python -m swell` is `swell`."""

from swell.cli.main import main

if __name__ == "__main__":
    main()
