"""Times and sizes as people write them: "90s", "1h30m", "6GiB". Plain numbers are seconds and MiB."""

from __future__ import annotations

import json
import math
import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(d|h|m|s|ms)(?=\d|$)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
MAX_S = 10 * 365 * 86400.0
MAX_MIB = 1 << 40
MAX_WRITTEN = 100
"""Characters of a value in a message."""

DURATION_FIX = "write seconds, or a duration such as 90s, 2h or 1h30m"
SIZE_FIX = "write MiB, or a size such as 512MiB or 6GiB"


def written(value: object) -> str:
    """A value as its user wrote it, for a message: text in quotes, all else as YAML has it; at most a line."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_WRITTEN else f"{text[: MAX_WRITTEN - 1]}…"


def parse_duration_s(value: object) -> float:
    """Seconds. Raises ValueError with what is wrong."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{written(value)} is not a duration; {DURATION_FIX}")
    seconds = _duration_text_s(value) if isinstance(value, str) else float(value)
    if not math.isfinite(seconds) or not 0 <= seconds <= MAX_S:
        raise ValueError(f"{written(value)} is out of range; a duration is between 0 and ten years")
    return seconds


def _duration_text_s(text: str) -> float:
    compact = text.replace(" ", "").lower()
    try:
        return float(compact)
    except ValueError:
        parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{written(text)} is not a duration; {DURATION_FIX}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_size_mib(value: object) -> int:
    """MiB, rounded up. A bare number is MiB; GB counts in thousands, GiB (and G) in 1024s."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{written(value)} is not a size; {SIZE_FIX}")
    mib = _size_text_mib(value) if isinstance(value, str) else float(value)
    if not math.isfinite(mib) or not 0 <= mib <= MAX_MIB:
        raise ValueError(f"{written(value)} is out of range; a size is between 0 and {MAX_MIB} MiB")
    return math.ceil(mib)


def _size_text_mib(text: str) -> float:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{written(text)} is not a size; {SIZE_FIX}")
    number, prefix, binary = match.groups()
    if not prefix:
        only_bytes = text.strip().lower().endswith("b")
        return float(number) / (1 << 20) if only_bytes else float(number)
    decimal = not binary and text.strip().lower().endswith("b")
    base = 1000 if decimal else 1024
    return float(number) * float(base ** _POWERS[prefix.lower()]) / (1 << 20)


def format_size(count: float) -> str:
    """For people: 512 B, 3.4 KiB, 120 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit is taken")


def format_duration(seconds: float) -> str:
    """Short, for tables: 45s, 12m, 3h20m, 2d4h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m{whole % 60:02d}s" if minutes < 10 else f"{minutes}m"
    hours = minutes // 60
    if hours < 48:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{hours // 24}d{hours % 24}h"
