r"""Progress of scripts without the library, read from their log: epochs, losses, speed.

`read_line` knows the usual forms (Keras, Lightning, Hugging Face, MXNet, PyTorch's examples, "epoch 3/10 loss 0.5") and
patterns of the job's own: regular expressions with named groups, `epoch`, `epochs`, `step` and any metric:

    progress: 'done (?P<epoch>\d+) of (?P<epochs>\d+), loss (?P<loss>\S+)'

`follow` makes a story of it. An epoch counts as done when a line of a later one comes: nothing is believed too early.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MAX_LINE = 2000
"""Longer lines are looked at up to here: a progress bar without line ends must not cost a second."""
MAX_OWN_LINE = 300
MAX_WILD = 2
"""With so short a line and so few wildcards a pattern of the job's own cannot take long, however it is written."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
READY_MADE: tuple[re.Pattern[str], ...] = tuple(
    re.compile(text)
    for text in (
        r"Epoch\[(?P<epoch>\d+)\](?: Batch \[(?P<step>\d+)(?:-\d+)?\])?",  # MXNet
        r"Train Epoch: (?P<epoch>\d+) \[(?P<step>\d+)/\d+",  # PyTorch's MNIST example
        r"Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<step>\d+)/\d+\]",  # PyTorch's ImageNet example
        r"Epoch (?P<epoch>\d+):\s+\d+%\|[^|]*\|\s*(?P<step>\d+)/",  # Lightning's bar
        r"\{.*'epoch': '?(?P<epoch>\d+)(?:\.\d+)?'?.*\}",  # Hugging Face Trainer
        r"(?i)\bepoch[ :=#\[]*(?P<epoch>\d+)(?:\s*(?:/|of)\s*(?P<epochs>\d+))?",  # Keras, and everybody else
    )
)
_SETS = "(?:train|val|valid|validation|test|eval)"
_MEASURES = "(?:loss|accuracy|acc|f1|auc|perplexity|mae|mse|cross-entropy)"
_METRIC = re.compile(rf"(?i)['\"]?\b(?P<name>{_SETS}?[ _-]?{_MEASURES})\b['\"]?\s*[:= (]\s*'?(?P<value>{_NUMBER})")
_SPEED = re.compile(rf"(?i)(?:speed|throughput)\s*[:=]\s*(?P<value>{_NUMBER})\s*(?:samples|images|examples|img)/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one line says."""

    epoch: int | None = None
    epochs: int = 0
    step: int = 0
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The story so far. `first` is the number that the script gives to the first epoch of this run."""

    first: int | None = None
    epoch: int | None = None
    epochs: int = 0
    began_s: float = 0.0
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsDone:
    """`count` epochs have ended, each in `epoch_s` on average; `epoch` are done in all, over this run's attempts."""

    epoch: int
    count: int
    epoch_s: float
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_line(line: str, patterns: Sequence[re.Pattern[str]] = ()) -> Seen | None:
    """What a line of the log says about progress, if anything. The job's own patterns come first."""
    for pattern in patterns:
        if (match := pattern.search(line, 0, MAX_OWN_LINE)) is not None:
            return _from_own(match)
    line = line[:MAX_LINE]
    epoch = next((match for pattern in READY_MADE if (match := pattern.search(line)) is not None), None)
    metrics = {_name(match["name"]): float(match["value"]) for match in _METRIC.finditer(line)}
    speed = _SPEED.search(line)
    if epoch is None and not metrics and speed is None:
        return None
    groups = epoch.groupdict() if epoch is not None else {}
    return Seen(
        epoch=int(groups["epoch"]) if groups else None,
        epochs=int(groups.get("epochs") or 0),
        step=int(groups.get("step") or 0),
        samples_per_s=float(speed["value"]) if speed is not None else 0.0,
        metrics=metrics,
    )


def harmless(pattern: str) -> bool:
    """Can this expression be let loose on logs? Not with a repeat within a repeat (`(a+)+`), nor with many wildcards:
    those may take longer than the age of the universe on a line made for it."""
    try:
        wild, nested = _repeats(re._parser.parse(pattern), within=False)  # type: ignore[attr-defined]
    except re.error:
        return False
    return not nested and wild <= MAX_WILD


def _repeats(tree: Any, within: bool) -> tuple[int, bool]:
    """(unbounded repeats of anything but plain characters and digits, is one unbounded repeat within another)."""
    wild, nested = 0, False
    for kind, argument in tree:
        name = str(kind)
        endless = name in ("MAX_REPEAT", "MIN_REPEAT") and int(argument[1]) > MAX_OWN_LINE
        nested = nested or (endless and within)
        wild += endless and _is_wild(argument[2])
        for part in _parts(name, argument):
            more, deeper = _repeats(part, within or endless)
            wild, nested = wild + more, nested or deeper
    return wild, nested


def _is_wild(repeated: Any) -> bool:
    text = str(list(repeated))
    return "ANY" in text or "NOT" in text or "BRANCH" in text


def _parts(name: str, argument: Any) -> list[Any]:
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    return [argument] if name == "ATOMIC_GROUP" else []


def _from_own(match: re.Match[str]) -> Seen:
    numbers = {name: number for name, text in match.groupdict().items() if (number := _number(text)) is not None}
    counts = {name: int(numbers.pop(name)) for name in ("epoch", "epochs", "step") if name in numbers}
    return Seen(
        epoch=counts.get("epoch"),
        epochs=counts.get("epochs", 0),
        step=counts.get("step", 0),
        samples_per_s=numbers.pop("samples_per_s", 0.0),
        metrics=numbers,
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _name(text: str) -> str:
    return re.sub(r"[ -]+", "_", text.strip().lower())


def follow(track: Track, seen: Seen, now_s: float, epochs_before: int = 0) -> tuple[Track, EpochsDone | None]:
    """Take one line in. `epochs_before` were done when this run began: a script that counts from the start again (or
    from 0, or from 1) is understood either way."""
    known = replace(
        track,
        epochs=seen.epochs or track.epochs,
        samples_per_s=seen.samples_per_s or track.samples_per_s,
        metrics={**track.metrics, **seen.metrics},
    )
    if seen.epoch is None or (track.epoch is not None and seen.epoch <= track.epoch):
        return known, None
    if track.epoch is None:
        return replace(known, first=seen.epoch, epoch=seen.epoch, began_s=now_s), None
    moved = replace(known, epoch=seen.epoch, began_s=now_s, metrics=dict(seen.metrics), samples_per_s=0.0)
    return moved, _ended(track, seen.epoch - track.epoch, now_s, epochs_before)


def finish(track: Track, now_s: float, epochs_before: int = 0) -> EpochsDone | None:
    """The script has ended well: so has its last epoch."""
    return None if track.epoch is None else _ended(track, 1, now_s, epochs_before)


def _ended(track: Track, count: int, now_s: float, epochs_before: int) -> EpochsDone:
    assert track.epoch is not None
    assert track.first is not None
    return EpochsDone(
        epoch=epochs_before + track.epoch - track.first + count,
        count=count,
        epoch_s=max(0.0, now_s - track.began_s) / count,
        samples_per_s=track.samples_per_s,
        metrics=track.metrics,
    )
