"""Results of a pass: how many GPUs each job gets (`Decision`), which ones (`Layout`), and what to do (`Plan`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from swell.core.events import StopWhy
from swell.core.evolve import made_fast
from swell.core.ids import JobId
from swell.core.resources import Allocation

Detail = str | int | float


class ReasonCode(StrEnum):
    """Why a job waits, or has its allocation. `plan.explain` turns a reason into a sentence."""

    GRANTED = "granted"
    CAPACITY = "capacity"  # needs more GPUs than are free for it: needs, free
    BEHIND = "behind"  # others come first: ahead (how many), first (id)
    FRAGMENTED = "fragmented"  # enough GPUs in all, but not where it could use them
    SHAPE = "shape"  # no node as configured could hold it: needs, largest
    GPU_TYPE = "gpu-type"  # the cluster has none of the GPU types it accepts
    NODES = "nodes"  # none of the nodes that it may use takes jobs: accepts (by name, labels, containers)
    MEMORY = "memory"  # CPU or memory of the nodes, or GPU memory for a share
    QUOTA = "quota"  # its team is at its quota: team, quota, used
    LIMIT = "limit"  # its user runs as many jobs as one user may: user, limit, running
    BUDGET = "budget"  # its team has used its GPU hours of this month: team, used, budget, until_s
    NAMESPACE = "namespace"  # jobs of its namespace may have no more together: why, needs, left, what
    STARVED = "starved"  # waited so long that it goes ahead of its order: waited_s
    PAUSED = "paused"
    BACKOFF = "backoff"  # after a failure, until: until_s
    CLEANING = "cleaning"  # workers of its last run may still be alive: nodes
    FILES = "files"  # its files are on machines that do not answer, or take no new runs: nodes, why
    DEPENDS = "depends"  # on jobs that have not completed: jobs
    FREEING = "freeing"  # its GPUs are being freed by others: by
    NO_GAIN = "no-gain"  # more GPUs would not make it faster: at
    NOT_WORTH = "not-worth"  # a change would cost more than it brings: cost_s, gain_s
    PINNED = "pinned"  # cannot resume, so it is left alone
    SETTLING = "settling"  # changed a moment ago; left alone until: until_s
    STOPPING = "stopping"


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    code: ReasonCode
    detail: Mapping[str, Detail] = field(default_factory=dict)


Reasons = Mapping[JobId, tuple[Reason, ...]]


Explain = Callable[[], Reasons]
"""Computes reasons on demand: every pass has reasons for every job, and few are ever read."""


def no_reasons() -> Reasons:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """n GPUs of one type (n = 1 for a share of a GPU or a CPU-only job; `gpu_type` is empty for the latter)."""

    n: int
    gpu_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Jobs that are not in `grants` get nothing, and have at least one reason.

    A policy returns reasons as a mapping (`reasons`), as a function that computes one (`explain`), or both; for a job
    in both, `reasons` takes precedence. Read them with `why`."""

    grants: Mapping[JobId, Grant]
    reasons: Reasons = field(default_factory=dict)
    explain: Explain = field(default=no_reasons, compare=False)
    memory: Mapping[str, object] = field(default_factory=dict)
    wake_s: float | None = None  # when time alone would change the answer

    def why(self) -> dict[JobId, tuple[Reason, ...]]:
        return {**self.explain(), **self.reasons}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A job that keeps its size and moves to other GPUs, and why that pays."""

    job: JobId
    workers: int  # how many of its workers change node
    why: str
    gain: float = 0.0  # of speed, relative: 0.18 is 18 % faster
    cost_s: float = 0.0
    for_job: JobId | None = None  # moved to make room for this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The allocation of each granted job. One that could not be placed is in `unplaced`, with the reason."""

    allocations: Mapping[JobId, Allocation]
    unplaced: Mapping[JobId, Reason] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    gap: float | None = None  # proven distance from the optimum, for solvers that know it


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    job: JobId
    allocation: Allocation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    job: JobId
    why: StopWhy
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Withdraw the resize or move of a job: it keeps its allocation."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Resize a run in place, for launchers that can: it continues."""

    job: JobId
    allocation: Allocation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now. The daemon (or the simulator) turns the parts into events, in this order: withdrawals, stops,
    resizes, starts; commits them; then commands the executors. A start never waits for a stop of the same plan: a later
    pass starts the job when its GPUs are free."""

    withdrawals: tuple[Withdraw, ...] = ()
    stops: tuple[Stop, ...] = ()
    resizes: tuple[Resize, ...] = ()
    starts: tuple[Start, ...] = ()
    explain: Explain = field(default=no_reasons, compare=False)  # computes the reasons of every job in the snapshot
    targets: Mapping[JobId, Grant] = field(default_factory=dict)  # what each job gets once the plan is carried out
    moves: tuple[Move, ...] = ()
    memory: Mapping[str, object] = field(default_factory=dict)
    wake_s: float | None = None  # when time alone would change the answer (a back-off ends, a run has settled)
