"""What executors report from their machines. `Executor.observe` yields these values, `daemon/observing.py` turns them
into events. An observation is not a fact yet: it may repeat what is on record, or come from an attempt that is over.
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
    """Nodes fetch what the run needs first. Comes again as `detail` changes, until it is empty or the run is up."""

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
    """What a machine has."""

    node: Node
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusMeasured:
    """How much the GPUs of a machine, by index, are used. Comes again at each look; no event follows from it."""

    node: str
    use: Mapping[int, GpuUse]
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone:
    """What manages the machines has taken this one away: nothing runs there, and it does not come back as it was."""

    node: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeard:
    """A machine that is watched for contact has answered a look. `running`: all runs of this cluster that have a
    process there. `renewed`: the look was, or may have been, answered with a renewal of its leases. `leased`: it is
    known to have arrived."""

    node: str
    boot_id: str
    running: tuple[RunId, ...]
    at_s: float
    renewed: bool = True
    leased: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesFound:
    """Jobs of which a machine keeps something, as it was when contact with it began."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A run's own record of its training, heard by a daemon or not. Reported when a run is adopted, when it ends, and
    when the record has been ahead for a while."""

    run: RunId
    resumed: int  # epochs that were done when this run began
    epochs: int  # done by now, over all attempts
    total: int  # 0: the training does not say
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
    """A run begins with an older checkpoint than was reported. See `core.events.JobRewound`."""

    run: RunId
    epoch: int
    at_s: float
    why: str


OfNode = NodeSeen | GpusMeasured | NodeGone | NodeHeard | FilesFound | Adopted
Observation = RunFetching | RunUp | RunGone | RunProgress | CheckpointKept | Rewound | OfNode
