"""`evolve(value, field=…)`: what `dataclasses.replace` does, several times faster, for frozen slotted values.

A restart replays hundreds of thousands of events, and nearly all of that time would go into `replace`, which looks at
every field of a record in Python code to change two. For each class one straight-line copier is written and compiled,
as dataclasses do for `__init__`. There must be no `__post_init__`, as it would not be called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")
_set = object.__setattr__
_copiers: dict[type, Callable[[Any], Any]] = {}


def evolve(value: T, **changes: Any) -> T:
    """The same value with some fields changed."""
    copier = _copiers.get(type(value)) or _copier(type(value))
    new: T = copier(value)
    for name, changed in changes.items():
        _set(new, name, changed)
    return new


def _copier(kind: type) -> Callable[[Any], Any]:
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} checks itself when made; use dataclasses.replace"
    names = [field.name for field in fields(kind)]
    lines = ["def copy(old):", " new = make(kind)", *(f" set_{name}(new, old.{name})" for name in names), " return new"]
    scope: dict[str, Any] = {f"set_{name}": kind.__dict__[name].__set__ for name in names}
    scope |= {"make": object.__new__, "kind": kind}
    exec("\n".join(lines), scope)  # noqa: S102 - made of the field names of our own classes only
    copier: Callable[[Any], Any] = scope["copy"]
    _copiers[kind] = copier
    return copier
