"""The short forms people write in a job file, turned into the one long form each: `gpus: 1-4`, `priority: high`, …

Each function takes what was written and returns what the schema checks; it raises ValueError as "what; how to fix it".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from swell.core.job import PRIORITIES
from swell.jobfile.units import parse_duration_s, written

SHELL = ("/bin/sh", "-c")
MAX_ARG_BYTES = 131_071  # Linux takes no longer argument, nor a longer NAME=value
MAX_GPUS = 65_536
MAX_ARRAY = 10_000

_RANGE = re.compile(r"(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9})")
_MULTIPLE = re.compile(r"multiples?[ -]of[ -](\d{1,5})")
_PORT = re.compile(r"\d{1,5}")
GPUS_FIX = "write a number (gpus: 4), a range (gpus: 1-4) or a mapping (gpus: {min: 1, max: 4})"
PRIORITY_FIX = f"write {', '.join(PRIORITIES)} or a whole number"


class Misfit(ValueError):
    """Fields that do not go together; `field` is the one to look at."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def gpus(value: object) -> object:
    if isinstance(value, int) and _whole(value) and 0 <= value <= MAX_GPUS:
        return {"min": value, "max": value}
    if isinstance(value, str):
        text = value.strip()
        if text.isdecimal() and len(text) < 10:
            return {"min": int(text), "max": int(text)}
        match = _RANGE.fullmatch(text)
        if match:
            return {"min": int(match[1]), "max": int(match[2])}
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{written(value)} is not a number of GPUs; {GPUS_FIX}")


def sizes(value: object) -> object:
    """`pow2`, `multiple of 4` and lists. The rule is applied when min and max are known (`sizes_between`)."""
    if value == "pow2" or (isinstance(value, str) and _MULTIPLE.fullmatch(value)):
        return value
    if isinstance(value, list | tuple) and value and all(_whole(item) for item in value):
        return list(value)
    raise ValueError(
        f"{written(value)} is not a rule for sizes; write pow2, multiple of 4, or a list such as [1, 2, 4]"
    )


def sizes_between(rule: str | list[int], low: int, high: int) -> tuple[int, ...]:
    if isinstance(rule, list):
        return tuple(sorted({n for n in rule if low <= n <= high}))
    match = _MULTIPLE.fullmatch(rule)
    if match:
        step = max(1, int(match[1]))
        return tuple(range(-(-low // step) * step or step, high + 1, step))
    return tuple(n for n in (1 << k for k in range(MAX_GPUS.bit_length())) if low <= n <= high)


def priority(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in PRIORITIES:
        return PRIORITIES[text]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{written(value)} is not a priority; {PRIORITY_FIX}") from None


def command(value: object) -> tuple[str, ...]:
    """A shell line, or a list: the program and its arguments."""
    if isinstance(value, str):
        argv: tuple[str, ...] = (*SHELL, value)
    elif isinstance(value, list | tuple):
        argv = tuple(_word(item) for item in value)
    else:
        raise ValueError(
            f"{written(value)} is not a command; write one shell line, or a list: the program and its arguments"
        )
    if not argv or not (argv[-1] if argv[:2] == SHELL else argv[0]).strip():
        raise ValueError("is empty; write what should run, for example: python train.py")
    for word in argv:
        if len(word.encode(errors="replace")) > MAX_ARG_BYTES:
            raise ValueError("is longer than the 128 KiB that Linux takes; put it into a file and use script:")
    return argv


def words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError(f"{written(value)} is not a list; write one as [a, b]")
    return tuple(_word(item) for item in value)


def _word(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{written(value)} is not text; put it into quotes")
    return str(value)


def env(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a mapping; write NAME: value, one a line")
    return {_variable(name): _env_value(name, item) for name, item in value.items()}


def _variable(name: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(
            f"{written(name)} is not a name of a variable; use letters, digits and _, not beginning with a digit"
        )
    return name


def _env_value(name: object, value: object) -> str:
    if value is None:
        raise ValueError(f'{name} has no value; write {name}: "" for an empty one')
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        if len(f"{name}={value}".encode(errors="replace")) > MAX_ARG_BYTES:
            raise ValueError(f"{name} is longer than the 128 KiB that Linux takes; put it into a file of the job")
        return str(value)
    raise ValueError(f"{name} is not text; put its value into quotes")


def labels(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a mapping; write label: value")
    return {_word(key): _word(item) for key, item in value.items()}


def mounts(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError("is not a list; write [/data:/data:ro]")
    return [_mount(item) for item in value]


def _mount(value: object) -> object:
    if not isinstance(value, str):
        return value
    source, colon, rest = value.partition(":")
    target, _, mode = rest.partition(":")
    if not (source and colon and target) or mode not in ("", "ro", "rw"):
        raise ValueError(f"{written(value)} is not a mount; write source:target or source:target:ro")
    return {"source": source, "target": target, "read_only": mode == "ro"}


def ports(value: object) -> dict[str, str]:
    """Host port -> port inside."""
    pairs: list[tuple[Any, Any]]
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = [_port_pair(item) for item in value]
    else:
        raise ValueError("is not a mapping; write {8080: 80}, or a list [8080:80]")
    found = {str(host): str(inside) for host, inside in pairs}
    for port in (*found, *found.values()):
        if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            raise ValueError(f"{written(port)} is not a port; a port is a number from 1 to 65535")
    return found


def _port_pair(value: object) -> tuple[object, object]:
    host, colon, inside = str(value).partition(":")
    return (host, inside) if colon else (host, host)


def depends_on(value: object) -> tuple[int | str, ...]:
    items = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if not (_whole(item) or (isinstance(item, str) and item)):
            raise ValueError(f"{written(item)} is not a job; write ids or names, as in [12, prepare-data]")
    return tuple(int(text) if text.isdecimal() else text for text in map(str, items))


def array(value: object) -> tuple[int, ...]:
    """Indices: `10` is 0…9, `5-9` is 5…9, or a list."""
    count = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    if isinstance(count, int) and not isinstance(count, bool):
        low, high = 0, count - 1
    elif isinstance(value, list | tuple) and all(_whole(item) and item >= 0 for item in value):
        return _bounded(tuple(dict.fromkeys(value)), len(value))
    else:
        match = _RANGE.fullmatch(str(value).strip())
        if match is None:
            raise ValueError(f"{written(value)} is not an array; write a number (10), a range (0-9) or a list ([0, 3])")
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise ValueError(f"{written(value)} ends before it begins; write {high}-{low}")
    return _bounded(range(low, high + 1), high - low + 1)


def _bounded(indices: range | tuple[int, ...], count: int) -> tuple[int, ...]:
    if not 1 <= count <= MAX_ARRAY:
        raise ValueError(f"has {count} elements; it may have 1 to {MAX_ARRAY}")
    return tuple(indices)


def sweep(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("is not a mapping of parameters; write lr: [0.1, 0.01]")
    found = {}
    count = 1
    for name, items in value.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{written(name)} is not a name of a parameter; use letters, digits and _")
        if not isinstance(items, list | tuple) or not items:
            raise ValueError(f"{name} has no list of values; write {name}: [0.1, 0.01]")
        found[name] = tuple(_env_value(name, item) for item in items)
        count *= len(items)
    if count > MAX_ARRAY:
        raise ValueError(f"makes {count} jobs; it may make up to {MAX_ARRAY}")
    return found


def deadline(value: object) -> datetime | float:
    """A point in time, or seconds from submission."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time.max)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else parse_duration_s(value)
    except ValueError:
        pass
    try:
        return parse_duration_s(value)
    except ValueError:
        raise ValueError(
            f"{written(value)} is not a time; write 2026-12-24T18:00, or a duration from now such as 8h"
        ) from None
