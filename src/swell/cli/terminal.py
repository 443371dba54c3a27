"""The one way to a terminal: what people and jobs named or said is shown, never obeyed.

Names, reasons and errors may come from anybody; a terminal would take escape sequences in them for orders (the title,
the clipboard, lines that were never printed). `say` is used for everything but a job's own log, which goes through
`LogWriter`."""

from __future__ import annotations

import codecs
import os
import re
import sys
from typing import IO

import click

_CONTROL = r"[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # such as a colour
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # such as a title, with a text of any length
    rf"|\x1b.?|{_CONTROL}",
    re.DOTALL,
)
_HARMLESS = re.compile(r"\x1b\[[0-9;:]*[mKABCDG]")
"""Colours, and moves of the cursor that progress bars make."""
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4000})?\Z")


def say(text: str = "", *, err: bool = False, colour: str = "") -> None:
    """Print lines for people, coloured on a terminal unless NO_COLOR is set."""
    shown = "\n".join(map(visible, text.split("\n")))
    if colour and not os.environ.get("NO_COLOR"):
        shown = click.style(shown, dim=True) if colour == "dim" else click.style(shown, fg=colour)
    click.echo(shown, err=err, file=_stand_in(err))


def _stand_in(err: bool) -> IO[str] | None:
    """What a progress bar has put in place of the stream, so that lines go above it; click alone writes past it."""
    stream, own = (sys.stderr, sys.__stderr__) if err else (sys.stdout, sys.__stdout__)
    return None if stream is own else stream


def visible(text: str) -> str:
    """Every character as itself, or a question mark."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def safe(text: str) -> str:
    """The same on one line."""
    return text if text.isprintable() else visible(" ".join(text.split()))


class LogWriter:
    """A job's log: as it is into files and pipes; on a terminal with colours and progress bars, and without orders."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._filters = out.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def write(self, text: str) -> None:
        self._out.write(self._filtered(text) if self._filters else text)

    def write_bytes(self, data: bytes) -> None:
        if self._filters:
            self.write(self._decoder.decode(data))
        else:
            self._out.buffer.write(data)  # type: ignore[attr-defined]

    def flush(self) -> None:
        self._out.flush()

    def _filtered(self, text: str) -> str:
        text = self._rest + text
        half = _UNFINISHED.search(text)
        whole, self._rest = (text[: half.start()], half[0]) if half else (text, "")
        return _SEQUENCE.sub(lambda found: found[0] if _HARMLESS.fullmatch(found[0]) else "", whole)
