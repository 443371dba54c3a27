"""Finds the comment in one line of bash, and a line that bash would join to the next one. `jobfile.batchfile` calls it.
Pure; quotes and expansions may be nested to any depth."""

from __future__ import annotations

import re

_CLOSED_BY = {'"': '"', "`": "`", "(": ")", "$(": ")", "${": "}"}
_QUOTED = re.compile(r"\\.|\$[({]|.", re.DOTALL)
_PLAIN = re.compile(r"\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|\$[({]|.", re.DOTALL)
_WORD_ENDS = frozenset(" \t;&|()<>")


def comment_at(line: str) -> int:
    """The index of the `#` that begins a comment: at the start of a word, outside of quotes and expansions. The length
    of the line if there is no comment."""
    opened: list[str] = []
    index, word_starts = 0, True
    while index < len(line):
        part = _part(line, index, opened)
        if part == "#" and word_starts and not opened:
            return index
        word_starts = part in _WORD_ENDS
        if opened and part == _CLOSED_BY[opened[-1]]:
            word_starts = opened.pop() == "("
        elif part in _CLOSED_BY and (part != "(" or _is_plain(opened)):
            opened.append(part)
        index += len(part)
    return len(line)


def _part(line: str, index: int, opened: list[str]) -> str:
    """One token from `index` on: a character, an escape (`\\#`), a quoted text (`'# a'`), or what opens an expansion
    (`$(`)."""
    quoted = opened[-1:] == ['"'] or opened[-2:] == ['"', "${"]  # inside double quotes ' is a plain character
    found = (_QUOTED if quoted else _PLAIN).match(line, index)
    return found[0] if found else line[index]


def _is_plain(opened: list[str]) -> bool:
    return opened[-1:] not in (['"'], ["${"])


def goes_on(line: str) -> bool:
    """Whether it ends with an unescaped backslash, so that bash would join the next line to it."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
