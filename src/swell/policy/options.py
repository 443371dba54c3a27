"""Options of policies: what a person may set about one (`swell policy NAME key=value`), checked with clear messages."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from swell.core.errors import SwellError
from swell.core.snapshot import Snapshot
from swell.core.spelling import instead_of
from swell.ports import Option, OptionValue

__all__ = ["NO_OPTIONS", "Option", "Options", "Value", "check", "flag", "number", "numbers", "problem"]

Value = OptionValue
Options = Mapping[str, Option]
NO_OPTIONS: Options = {}


def check(policy: str, declared: Options, given: Mapping[str, Value]) -> None:
    """Raise `SwellError` with a sentence for the first option that is not there or not possible."""
    for name, value in given.items():
        option = declared.get(name)
        if not declared:
            raise SwellError(f"policy {policy} has no options, so no {name!r}")
        if option is None:
            raise SwellError(f"policy {policy} has no option {name!r}; {instead_of(name, sorted(declared))}")
        wrong = problem(option, value)
        if wrong:
            raise SwellError(f"option {name} of policy {policy} must be {wrong}, not {value!r} ({option.doc})")


def problem(option: Option, value: Value) -> str:
    """What the value must be, if it is not; else empty."""
    if option.numbers:
        return "" if _rising(value, option) else f"rising numbers of at least {option.low:g}, such as “3600, 36000”"
    if isinstance(option.default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(option.default, str):
        return "" if isinstance(value, str) else "text"
    if isinstance(value, bool | str) or not option.low <= value <= option.high:
        return _range(option)
    if isinstance(option.default, int) and value != int(value):
        return f"a whole number, {_range(option)}"
    return ""


def _range(option: Option) -> str:
    if option.high == float("inf"):
        return "a number" if option.low == float("-inf") else f"a number of at least {option.low:g}"
    return f"a number from {option.low:g} to {option.high:g}"


def _rising(value: Value, option: Option) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in str(value).split(","))
    except ValueError:
        return ()
    rising = all(a < b for a, b in pairwise(numbers))
    return numbers if rising and all(option.low <= n <= option.high for n in numbers) else ()


def number(snapshot: Snapshot, declared: Options, name: str) -> float:
    """The option as a number; its default if what is set is not one (decisions never fail on a setting)."""
    option = declared[name]
    value = snapshot.options.policy.get(name, option.default)
    return float(option.default if problem(option, value) else value)


def numbers(snapshot: Snapshot, declared: Options, name: str) -> tuple[float, ...]:
    """The same for a list of numbers."""
    option = declared[name]
    return _rising(snapshot.options.policy.get(name, option.default), option) or _rising(option.default, option)


def flag(snapshot: Snapshot, declared: Options, name: str) -> bool:
    option = declared[name]
    value = snapshot.options.policy.get(name, option.default)
    return bool(option.default if problem(option, value) else value)
