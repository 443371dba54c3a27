"""Notes the lines of the package that a process executes which a test started: a daemon, a command, a shim.

`collect` puts a copy of this file beside the notes and has every module of the (copied) package run it, since a shim is
started without site-packages. Each line is appended when it is executed first in a test, so that SIGKILL loses none.
Stdlib only, Python 3.8; a failure to note may not change what the process does."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
FUNCTION = 1  # CO_OPTIMIZED: neither a module nor a class body
ELSEWHERE = ("/swell/shim/", "/swell/sdk/")  # delivered to the machines of jobs


def path_in_tree(file: str, source: str) -> str:
    """Of a file of the package, as the tree names it; empty for others."""
    if file.startswith(source):
        return "src/swell/" + file[len(source) :]
    for folder in ELSEWHERE:
        _, found, name = file.rpartition(folder)
        if found:
            return "src" + folder + name
    return ""


def follow(source: str) -> None:
    try:
        with open(os.path.join(FOLDER, "current"), "rb") as file:
            test = memoryview(mmap.mmap(file.fileno(), 4, prot=mmap.PROT_READ)).cast("I")
    except OSError:  # of a user who may not read it
        return
    seen: set[tuple[int, Any, int]] = set()
    paths: dict[str, str] = {}

    def note(frame: Any, event: str, _: object) -> Any:
        key = (test[0], frame.f_code, frame.f_lineno)
        if event == "line" and key not in seen:
            seen.add(key)
            append("%d\t%s\t%d\n" % (key[0], paths[frame.f_code.co_filename], key[2]))  # noqa: UP031
        return note

    def enter(frame: Any, _event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_flags & FUNCTION:
            return None
        path = paths.get(code.co_filename)
        if path is None:
            path = paths[code.co_filename] = path_in_tree(code.co_filename, source)
        return note if path else None

    threading.settrace(enter)
    sys.settrace(enter)


def append(line: str) -> None:
    try:
        out = os.open(os.path.join(FOLDER, "children"), os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    try:
        os.write(out, line.encode())
    finally:
        os.close(out)


if __name__ == "__main__":
    follow(os.path.join(os.path.dirname(FOLDER), "src", "swell", ""))
