"""Suggestions for a name that does not exist: the one that was probably meant, else all that exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def instead_of(name: object, known: Iterable[str]) -> str:
    """To follow “there is no …”. Capitals, and `-` for `_`, do not count as different."""
    known = tuple(known)
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"there are: {', '.join(known) or 'none'}"


def nearest(name: object, known: Iterable[str]) -> str:
    """The one that was probably meant; empty if none is near."""
    names = {_folded(there): there for there in known}
    near = get_close_matches(_folded(str(name)), names, n=1)
    return names[near[0]] if near else ""


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
