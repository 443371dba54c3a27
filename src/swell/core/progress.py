r"""Reads epochs, steps, losses and speed from lines of logs of scripts without the library. Pure; `daemon.logwatch`
calls it.

`read_line` knows the usual formats (Keras, Lightning, Hugging Face, tqdm, Rich, MXNet, PyTorch's examples, nanoGPT,
"epoch 3/10 loss 0.5"). A job may have patterns of its own: regular expressions with named groups, `epoch` of `epochs`,
`step` of `steps`, and any metric:

    progress: 'done (?P<epoch>\d+) of (?P<epochs>\d+), loss (?P<loss>\S+)'

`core.progress_track` derives the progress of a run from the lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_LINE = 2000
"""Only the beginning of a longer line is read: a progress bar without line ends must not cost a second."""
MAX_DIGITS = 15
"""Longer numbers are ignored."""
MAX_OWN_LINE = 300
"""The part of a line that a job's own patterns are matched against."""

# Possessive repeats (`++`) avoid backtracking over a line of 2,000 digits or spaces.
_NUMBER = r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?"
_COUNT = r"\d{1,3}(?:,\d{3})++|\d++"
_NOT_TRAINED = "".join(rf"(?<!{kind}[ _-])" for kind in ("eval", "val", "valid", "validation", "test", "warmup"))
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x08]")
"""Colours and movements of the cursor, as Rich and Keras write them."""
EPOCHS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(text)
    for text in (
        r"Epoch\[(?P<epoch>\d+)\](?: Batch \[(?P<step>\d+)(?:-\d+)?\])?",  # MXNet
        r"Train Epoch: (?P<epoch>\d+) \[(?P<step>\d+)/(?P<steps>\d+)",  # PyTorch's MNIST example
        r"Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<step>\d+)/(?P<steps>\d+)\]",  # PyTorch's ImageNet example
        r"Epoch (?P<epoch>\d+)(?:/(?P<epochs>\d+))?:\s+\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+)",  # Lightning, tqdm
        r"\{.*'epoch': '?(?P<epoch>\d++)(?:\.\d++)?'?.*\}",  # Hugging Face Trainer
        r"(?i)\bnum(?:ber of)? epochs\s*[=:]\s*(?P<epochs>\d+)",  # its banner
        # Keras, and everybody else; but no "steps per epoch = 375", "max epoch 300" or "best epoch: 3"
        r"(?i)(?<!per )(?<!max )(?<!total )(?<!best )(?<!last )\bepoch(?:['\"]:)?[ :=#\[]*(?P<epoch>\d+)"
        r"(?:\s*(?:/|of)\s*(?P<epochs>\d+))?",
    )
)
STEPS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(text)
    for text in (
        r"(?<!\d)\d++%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+) \[",  # tqdm, Hugging Face's bar
        r"(?i)\btotal (?:optimization |training )?steps\s*[=:]\s*(?P<steps>\d+)",  # Hugging Face's banner
        rf"(?i)(?<!per ){_NOT_TRAINED}\b(?:iter|iteration|step|global[ _]step)s?(?:['\"]:)?[ :=#\[]+(?P<step>{_COUNT})"
        rf"(?:\s*(?:/|of)\s*(?P<steps>{_COUNT}))?",  # nanoGPT: "iter 300: loss 2.1, time 20ms"
    )
)
_SETS = "(?:train|val|valid|validation|test|eval)"
_MEASURES = "(?:loss|accuracy|acc|f1|auc|perplexity|mae|mse|cross-entropy)"
_METRIC = re.compile(
    rf"(?i)['\"]?\b(?P<name>{_SETS}?[ _-]?{_MEASURES})\b['\"]?(?:\s*+[:=(]\s*+|\s++)'?"
    rf"(?P<value>{_NUMBER})(?:/(?P<of>\d+))?"
)
_SPEED = re.compile(rf"(?i)(?:speed|throughput)\s*[:=]\s*(?P<value>{_NUMBER})\s*(?:samples|images|examples|img)/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The values that one line contains."""

    epoch: int | None = None
    epochs: int = 0
    step: int | None = None  # of the epoch, or of the training
    steps: int = 0
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_line(line: str) -> Seen | None:
    """The progress in a line of a known format; None: it has none. Takes milliseconds."""
    line = _CONTROL.sub("", line[:MAX_LINE])
    counts = {**_first(STEPS, line), **_first(EPOCHS, line)}
    metrics = {_name(match["name"]): _value(match) for match in _METRIC.finditer(line)}
    speed = _SPEED.search(line)
    if not counts and not metrics and speed is None:
        return None
    return _seen(counts, float(speed["value"]) if speed is not None else 0.0, metrics)


def _first(patterns: Sequence[re.Pattern[str]], line: str) -> dict[str, int]:
    """The numbers of the first pattern that matches."""
    match = next((match for pattern in patterns if (match := pattern.search(line)) is not None), None)
    found = match.groupdict() if match is not None else {}
    return {name: int(text.replace(",", "")) for name, text in found.items() if text and len(text) <= MAX_DIGITS}


def _value(match: re.Match[str]) -> float:
    """The value of a metric; `Accuracy: 9903/10000` is a fraction."""
    return float(match["value"]) / (int(match["of"] or 0) or 1)


def groups_of(line: str, patterns: Sequence[re.Pattern[str]]) -> dict[str, str | None] | None:
    """The groups of the first of the job's own patterns that matches. It may take for ever, so never call it in the
    daemon."""
    for pattern in patterns:
        if (match := pattern.search(line, 0, MAX_OWN_LINE)) is not None:
            return match.groupdict()
    return None


def seen_of(groups: Mapping[str, str | None]) -> Seen:
    """The values from the groups of a job's own pattern."""
    numbers = {name: number for name, text in groups.items() if (number := _number(text)) is not None}
    names: tuple[str, ...] = ("epoch", "epochs", "step", "steps")
    counted = {name: numbers.pop(name) for name in names if name in numbers}
    counts = {name: int(number) for name, number in counted.items() if 0 <= number < 10**MAX_DIGITS}
    return _seen(counts, numbers.pop("samples_per_s", 0.0), numbers)


def _seen(counts: Mapping[str, int], samples_per_s: float, metrics: Mapping[str, float]) -> Seen:
    return Seen(
        epoch=counts.get("epoch"),
        epochs=counts.get("epochs", 0),
        step=counts.get("step"),
        steps=counts.get("steps", 0),
        samples_per_s=samples_per_s,
        metrics=metrics,
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _name(text: str) -> str:
    return re.sub(r"[ -]+", "_", text.strip().lower())
