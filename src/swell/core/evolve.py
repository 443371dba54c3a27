"""`evolve(value, field=…)`: what `dataclasses.replace` does, several times faster, for frozen slotted values; and
`@made_fast` for classes of which a pass makes hundreds.

A restart replays hundreds of thousands of events, and nearly all of that time would go into `replace`, which looks at
every field of a record in Python code to change two. For each class, and each choice of fields that are changed
together, one straight-line copier is written and compiled, as dataclasses do for `__init__`. There must be no
`__post_init__`, as it would not be called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")
_copiers: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by class and names of changed fields


def evolve(value: T, **changes: Any) -> T:
    """The same value with some fields changed."""
    kind = type(value)
    key = (kind, *changes)
    new: T = (_copiers.get(key) or _copier(key, kind, list(changes)))(value, *changes.values())
    return new


def _copier(key: tuple[Any, ...], kind: type, changed: list[str]) -> Callable[..., Any]:
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} checks itself when made; use dataclasses.replace"
    names = [field.name for field in fields(kind)]
    if unknown := [name for name in changed if name not in names]:
        raise AttributeError(f"{kind.__name__} has no field {unknown[0]}")
    values = {name: f"new_{name}" if name in changed else f"old.{name}" for name in names}
    taken = "".join(f", new_{name}" for name in changed)
    lines = [f"def copy(old{taken}):", " new = make(kind)"]
    lines += [*(f" set_{name}(new, {value})" for name, value in values.items()), " return new"]
    scope: dict[str, Any] = {f"set_{name}": kind.__dict__[name].__set__ for name in names}
    scope |= {"make": object.__new__, "kind": kind}
    exec("\n".join(lines), scope)  # noqa: S102 - made of the field names of our own classes only
    copier: Callable[..., Any] = scope["copy"]
    _copiers[key] = copier
    return copier


def made_fast(kind: type[T]) -> type[T]:
    """The same class with an `__init__` that does the same in half the time. That of a frozen dataclass asks `object`
    to set each field by its name; this one uses the slots. Keyword-only fields, no `__post_init__`."""
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} checks itself when made"
    scope: dict[str, Any] = {"ABSENT": MISSING}
    taken: list[str] = []
    lines: list[str] = []
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
        assert field.kw_only, f"{kind.__name__}.{field.name} may be given by position"
        scope[f"set_{field.name}"] = kind.__dict__[field.name].__set__
        taken.append(_parameter(field, scope))
        value = field.name
        if field.default_factory is not MISSING:
            value = f"make_{field.name}() if {field.name} is ABSENT else {field.name}"
        lines.append(f" set_{field.name}(self, {value})")
    exec("\n".join([f"def __init__(self, *, {', '.join(taken)}):", *lines]), scope)  # noqa: S102 - as above
    kind.__init__ = scope["__init__"]  # type: ignore[method-assign]  # with the same parameters
    return kind


def _parameter(field: Field[Any], scope: dict[str, Any]) -> str:
    if field.default_factory is not MISSING:
        scope[f"make_{field.name}"] = field.default_factory
        return f"{field.name}=ABSENT"
    if field.default is not MISSING:
        scope[f"default_{field.name}"] = field.default
        return f"{field.name}=default_{field.name}"
    return field.name
