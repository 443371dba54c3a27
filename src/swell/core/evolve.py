"""Makes and copies values of frozen slotted dataclasses several times faster than dataclasses do.

`evolve(value, field=…)` does what `dataclasses.replace` does; `@made_fast` is for classes of which a pass makes
hundreds. The few hot places that make a thousand times as many prepare a function once: `maker(kind)` makes the same
values as `kind(…)`, and `changer(kind, "a", "b")(value, a, b)` is `evolve(value, a=a, b=b)`.

A restart replays hundreds of thousands of events, a simulation millions, and nearly all of that time would go into
`replace`, which loops over all fields in Python to change two, and into `__init__`, which sets each field through
`object.__setattr__`. This module generates and compiles straight-line functions instead, as dataclasses do for
`__init__`. The classes must have no `__post_init__`: it would not be called.

To fill a frozen value, the function makes an object of a mutable class with the same slots, sets the fields, and then
assigns its `__class__`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
_copiers: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by class and names of changed fields


def evolve(value: T, **changes: Any) -> T:
    """The same value with some fields changed."""
    kind = type(value)
    key = (kind, *changes)
    copier = _copiers.get(key)
    if copier is None:
        copier = _copiers[key] = changer(kind, *changes)
    new: T = copier(value, *changes.values())
    return new


def changer(kind: type[T], *changed: str) -> Callable[..., T]:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    if unknown := [name for name in changed if name not in names]:
        raise AttributeError(f"{kind.__name__} has no field {unknown[0]}")
    values = {name: f"new_{name}" if name in changed else f"old.{name}" for name in names}
    taken = "".join(f", new_{name}" for name in changed)
    return _compiled(f"copy(old{taken})", _filled(values), _scope(kind))


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """`kind` as a plain function. Calling a class packs the arguments into a dict and unpacks them again; calling a
    function does not."""
    assert isinstance(kind, type)
    scope = _scope(kind)
    taken, values = _parameters(kind, scope)
    return _compiled(f"make_{kind.__name__}(*, {', '.join(taken)})", _filled(values), scope)


def made_fast(kind: type[T]) -> type[T]:
    """The same class with an `__init__` that sets the slots directly, in half the time. Fields must be keyword-only; no
    `__post_init__`."""
    scope = _scope(kind)
    taken, values = _parameters(kind, scope)
    scope |= {f"set_{name}": kind.__dict__[name].__set__ for name in values}
    lines = [f"set_{name}(self, {value})" for name, value in values.items()]
    kind.__init__ = _compiled(f"__init__(self, *, {', '.join(taken)})", lines, scope)  # type: ignore[method-assign]
    return kind


def _filled(values: dict[str, str]) -> list[str]:
    sets = [f"new.{name} = {value}" for name, value in values.items()]
    return ["new = blank(opened)", *sets, "new.__class__ = kind", "return new"]


def _scope(kind: type) -> dict[str, Any]:
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} checks itself when made; use dataclasses.replace"
    return {"blank": object.__new__, "opened": _opened(kind), "kind": kind, "ABSENT": MISSING}


@cache
def _opened(kind: type) -> type:
    """A mutable class with the same slots: a value can change its class only if both have the same slots."""
    return type(f"Opened{kind.__name__}", kind.__bases__, {"__slots__": kind.__dict__["__slots__"]})


def _compiled(head: str, lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    exec("\n ".join([f"def {head}:", *lines]), scope)  # noqa: S102 - made of the field names of our own classes only
    made: Callable[..., Any] = scope[head.partition("(")[0]]
    return made


def _parameters(kind: type, scope: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The parameters of a function that makes values, and the expression for each field."""
    taken: list[str] = []
    values: dict[str, str] = {}
    for field in fields(kind):
        assert field.kw_only, f"{kind.__name__}.{field.name} may be given by position"
        parameter = _parameter(field, scope)
        if not field.init:
            values[field.name] = parameter.partition("=")[2]  # its default
            continue
        taken.append(parameter)
        values[field.name] = field.name
        if field.default_factory is not MISSING:
            values[field.name] = f"make_{field.name}() if {field.name} is ABSENT else {field.name}"
    return taken, values


def _parameter(field: Field[Any], scope: dict[str, Any]) -> str:
    if field.default_factory is not MISSING:
        scope[f"make_{field.name}"] = field.default_factory
        return f"{field.name}=ABSENT"
    if field.default is not MISSING:
        scope[f"default_{field.name}"] = field.default
        return f"{field.name}=default_{field.name}"
    return field.name
