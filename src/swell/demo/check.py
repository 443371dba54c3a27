"""Did anything get lost? Every job's losses, over all its attempts, against the same training without interruption."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from swell.demo.model import reference
from swell.demo.story import Act

LINE = re.compile(r"^epoch (\d+) loss (\S+) on (\d+) slots$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a job printed: an epoch and a loss a line, in order of its attempts."""

    epochs: tuple[int, ...]
    losses: tuple[float, ...]
    slots: tuple[int, ...]


def trained(runs_dir: Path, job: int, attempts: int) -> Trained:
    found: list[tuple[str, str, str]] = []
    for attempt in range(1, attempts + 1):
        log = runs_dir / f"{job}.{attempt}" / "0" / "log"
        found += LINE.findall(log.read_text(encoding="utf-8")) if log.exists() else []
    return Trained(
        epochs=tuple(int(epoch) for epoch, _, _ in found),
        losses=tuple(float(loss) for _, loss, _ in found),
        slots=tuple(int(slots) for _, _, slots in found),
    )


def complaints(act: Act, seen: Trained) -> list[str]:
    """What is wrong with a job's training; empty when every epoch was trained once, with exactly the right loss."""
    wrong = []
    if seen.epochs != tuple(range(act.epochs)):
        wrong.append(f"{act.name}: epochs {list(seen.epochs)} instead of 0 to {act.epochs - 1}, each once")
    expected = reference(act.width, act.seed, act.epochs)
    for epoch, (loss, right) in enumerate(zip(seen.losses, expected, strict=False)):
        if loss != right:
            wrong.append(f"{act.name}: the loss of epoch {epoch} is {loss!r}, without interruption it is {right!r}")
            break
    return wrong
