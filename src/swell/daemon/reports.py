"""Reports of the in-job library to the daemon, and its answers: plain values of the wire protocol.

The API decodes a request's body into `RunReport`; the engine answers with `StopView`. Positions are (epoch, step).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from swell.core.agreement import Position, StopPoint
from swell.core.events import Batching, EpochEnded, Saves
from swell.core.ids import RunId

Series = Mapping[str, tuple[tuple[float, float], ...]]
"""Measurements by name: (time, value) pairs in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """The library is about to start its first epoch of this run. `epochs` is 0 when the training leaves it unset."""

    epoch: int = 0
    epochs: int = 0
    unit: Literal["epoch", "step", "token", "sample"] = "epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """`core.events.EpochEnded` without the run and the time, which the daemon adds."""

    epoch: int
    count: int = 1
    epoch_s: float = 0.0
    step_s: float = 0.0
    samples_per_s: float = 0.0
    gpus: int = 0
    nodes: int = 1
    gpu_type: str = ""
    batch_size: int = 0
    goodput: float = 0.0
    gpu_memory_mib: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    batching: Batching | None = None
    unsaved: int = 0
    saves: Saves | None = None

    def event(self, run: RunId, at_s: float) -> EpochEnded:
        return EpochEnded(run=run, at_s=at_s, **{f.name: getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """The position of one rank of a run. `ack` is the proposed stop position that this rank has received."""

    rank: int = 0
    world_size: int = 0  # 0: as a rank of this run reported it before
    position: Position = (0, 0)
    ack: Position | None = None
    steps: bool = False  # this rank can stop at a step, not only at an epoch
    terminating: bool = False  # this rank got SIGTERM, so the ranks have to agree on where to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(RankStatus):
    """What one rank reports, with its position."""

    world_size: int = 1
    began: Began | None = None
    epochs: tuple[EpochReport, ...] = ()
    series: Series = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopView:
    """The answer to a rank. `poll_s`: how long the library may wait before it asks again."""

    stop: StopPoint | None = None
    poll_s: float = 1.0
