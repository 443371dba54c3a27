"""Observations: what executors report from their machines. `Executor.observe` yields them, `daemon/observing.py` turns
them into events. An observation may repeat what is recorded already, or come from an attempt that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swell.core.events import ExitReason
from swell.core.idle import GpuUse
from swell.core.ids import JobId, RunId
from swell.core.resources import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFetching:
    """Nodes fetch what the run needs to start. Repeated when `detail` changes, until it is empty or the run is up."""

    run: RunId
    at_s: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUp:
    run: RunId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGone:
    """All workers of the run have ended and nothing of it is left on its nodes."""

    run: RunId
    reason: ExitReason
    at_s: float
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """The inventory of a machine."""

    node: Node
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusMeasured:
    """The measured use of the GPUs of a machine, by index. Repeated with each measurement; it causes no event."""

    node: str
    use: Mapping[int, GpuUse]
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone:
    """The cluster manager has removed this machine: nothing runs there any more."""

    node: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeard:
    """A machine with a boot id has answered. `running`: all runs of this cluster with a process there. `renewed`: the
    daemon renewed its leases, or may have. `leased`: the renewal has certainly arrived."""

    node: str
    boot_id: str
    running: tuple[RunId, ...]
    at_s: float
    renewed: bool = True
    leased: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesFound:
    """Jobs that have files on a machine, at the time of the first contact with it."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Progress from the run's own record, which also has what no daemon received. Reported when a run is adopted, when
    it ends, and when its record has been ahead of its reports for a while."""

    run: RunId
    resumed: int  # epochs that were done when this run began
    epochs: int  # done by now, over all attempts
    total: int  # 0: unset
    began_s: float
    at_s: float  # of the last epoch
    unit: str = "epoch"  # what the three numbers count


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """All runs that `observe` was asked about have been reported, except those on machines that do not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointKept:
    """See `core.events.CheckpointCopied`."""

    job: JobId
    at_s: float
    epoch: int = 0
    bytes: int = 0
    problem: str = ""
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """A run begins with a checkpoint older than the last report. See `core.events.JobRewound`."""

    run: RunId
    epoch: int
    at_s: float
    why: str


OfNode = NodeSeen | GpusMeasured | NodeGone | NodeHeard | FilesFound | Adopted
Observation = RunFetching | RunUp | RunGone | RunProgress | CheckpointKept | Rewound | OfNode
