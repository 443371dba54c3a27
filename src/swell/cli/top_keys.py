"""What a key does to what `swell top` shows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

SORTS = ("state", "gpus", "waited", "ran", "priority", "name", "user")
UP, DOWN, ESCAPE = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j"), "\x1b"
ENTER, BACKSPACE = ("\r", "\n"), ("\x7f", "\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`page`: list, job or log. `typing`: keys go into the filter."""

    page: str = "list"
    sort: str = SORTS[0]
    filter: str = ""
    typing: bool = False
    chosen: int = 0  # a line of the list
    left: bool = False


def press(view: View, key: str, jobs: int) -> View:
    """`jobs`: how many lines the list has now."""
    if view.typing:
        return _typed(view, key)
    if view.page != "list":
        return _on_a_page(view, key)
    if key == "q":
        return replace(view, left=True)
    if key == "s":
        return replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)], chosen=0)
    if key == "/":
        return replace(view, typing=True, filter="", chosen=0)
    if key == ESCAPE:
        return replace(view, filter="")
    if key in UP or key in DOWN:
        step = -1 if key in UP else 1
        return replace(view, chosen=max(0, min(jobs - 1, view.chosen + step)))
    if key in ENTER or key == "l":
        return replace(view, page="log" if key == "l" else "job") if jobs else view
    return view


def _typed(view: View, key: str) -> View:
    if key in ENTER:
        return replace(view, typing=False)
    if key == ESCAPE:
        return replace(view, typing=False, filter="")
    if key in BACKSPACE:
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if key.isprintable() else view


def _on_a_page(view: View, key: str) -> View:
    if key in ("q", ESCAPE, *BACKSPACE):
        return replace(view, page="list")
    if key == "l":
        return replace(view, page="log")
    return replace(view, page="job") if key in ENTER else view
