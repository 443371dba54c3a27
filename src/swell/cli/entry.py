"""The program `swell`. Its modules take a while to load, in which Ctrl-C ends it without a traceback."""

import signal


def main() -> None:
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored: behind `&`
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from swell.cli.main import main as run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
