"""The events. Everything that happens is one of these values, appended to the store; the state is `replay(events)`.

An event states what happened and when (`at_s`, seconds since the epoch), never what to do about it. Reports of an old
attempt are recorded like any other and change nothing. Field types are plain, so that any encoder can handle them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from swell.core.account_events import AccountEvent, TokenIssued, TokenRevoked, UserRemoved, UserSet
from swell.core.evolve import made_fast
from swell.core.ids import JobId, RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Contact, Node, NodeCondition


class StopWhy(StrEnum):
    """Why a run was asked to stop."""

    PREEMPTED = "preempted"
    RESIZING = "resizing"
    MIGRATING = "migrating"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    NOT_WHOLE = "not-whole"  # the gang was not complete in time


VOLUNTARY = frozenset({StopWhy.RESIZING, StopWhy.MIGRATING})
"""Stops for the benefit of the job itself: they wait for its next checkpoint or are withdrawn, and never kill."""


class Saves(StrEnum):
    """When a run writes its checkpoints, and so where it can stop without losing work."""

    EPOCHS = "epochs"  # after each epoch
    ANYWHERE = "anywhere"  # at any step, when it has to stop
    OWN = "own"  # by a rule of its own, such as every 500 steps or 10 minutes


class ExitReason(StrEnum):
    """Why a run ended. `user-error`, `out-of-memory`, `killed` and `start-failed` count as failures of the job."""

    FINISHED = "finished"
    STOPPED = "stopped"  # as requested; `StopWhy` has the cause
    USER_ERROR = "user-error"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"  # by a signal that Swell did not send
    NODE_LOST = "node-lost"
    SHIM_LOST = "shim-lost"  # the shim died with the process; no exit record
    START_FAILED = "start-failed"  # the executor could not start it (missing script, no such user, ...)
    NODE_FULL = "node-full"  # its node had no room to start it (disk, memory): it is retried later


EXIT_STOPPED = 85
"""Exit code of the in-job library: it left at a checkpoint, as requested; the next attempt resumes the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    job: JobId
    spec: JobSpec
    at_s: float
    key: str = ""  # idempotency key
    batch: str = ""  # jobs submitted together (array, sweep) carry the same


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlanned:
    """A run was decided. Durable before anything is started. `reason` is a sentence for people."""

    run: RunId
    allocation: Allocation
    at_s: float
    reason: str = ""


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class RunPreparing:
    """A node fetches what the run needs to start (its image). `detail` is its progress; empty: done."""

    run: RunId
    at_s: float
    detail: str = ""


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """All workers of the run are up."""

    run: RunId
    at_s: float


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBegan:
    """The in-job library is about to start its first epoch of this run. From now on the job can stop and resume."""

    run: RunId
    at_s: float
    epoch: int = 0
    epochs: int = 0  # as reported by the training code; 0: unset
    unit: str = "epoch"  # what `epoch` and `epochs` count: epoch, step, token or sample
    saves: Saves | None = None  # None: unset, so EPOCHS if it counts epochs, else ANYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """The batch split of a job that adapts its batch size, statistics of its gradients, and bounds of its choice."""

    initial: int  # its user's batch size, the unit of progress
    largest: int
    local: int  # samples of one GPU in one micro-step
    accumulate: int = 0  # micro-steps before the one that synchronises
    local_min: int = 1
    local_max: int = 0  # the most that fits on one GPU; 0: unset
    sync_s: float = 0.0  # the part of a step that waits for other ranks' gradients
    grad_sqr: float = 0.0  # |G|²: squared norm of the gradient
    grad_var: float = 0.0  # tr(Σ): variance of one sample's gradient; both 0: not known yet


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """One or several complete epochs in one report (short epochs are reported together). Speed models learn from it. A
    training that counts in steps, tokens or samples (`TrainingBegan.unit`) reports those in place of epochs.

    A run with a long first epoch reports once within it, so that its speed is known early: then `count` is 0, no epoch
    has ended, and `epoch_s` is the estimated time of the whole epoch."""

    run: RunId
    at_s: float
    epoch: int  # epochs done so far, over all runs
    count: int = 1  # how many epochs this report covers; 0: still within one
    epoch_s: float = 0.0  # mean time of one
    step_s: float = 0.0  # mean time of a step
    samples_per_s: float = 0.0
    gpus: int = 0
    nodes: int = 1
    gpu_type: str = ""
    batch_size: int = 0
    goodput: float = 0.0  # useful samples/s, with adaptive batch sizes; 0: the same as samples_per_s
    gpu_memory_mib: int = 0  # peak, of one GPU
    metrics: Mapping[str, float] = field(default_factory=dict)
    batching: Batching | None = None  # of jobs with adaptive batch sizes
    unsaved: int = 0  # number of epochs, up to `epoch`, that are in no checkpoint yet
    epochs: int = 0  # their total, from the log of a script without the library; 0: unset
    saves: Saves | None = None  # None: unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """A run without the library has written a checkpoint: files of its checkpoint directory changed and are stable."""

    run: RunId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopRequested:
    run: RunId
    why: StopWhy
    at_s: float
    reason: str = ""
    by: str = ""
    now: bool = False  # kill at once, without grace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopWithdrawn:
    """A resize or move is withdrawn: the run reached no checkpoint, or its target is no longer available. The run
    continues unchanged. Never after `StopAgreed`, because ranks may have left."""

    run: RunId
    at_s: float
    reason: str = ""
    until_s: float = 0.0  # no further resize or move before this time, or before its next checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAgreed:
    """All ranks stop before `step` of `epoch`. Durable before any rank leaves."""

    run: RunId
    epoch: int
    at_s: float
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResized:
    """A run that scales in place now holds another allocation."""

    run: RunId
    allocation: Allocation
    at_s: float
    reason: str = ""


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    run: RunId
    reason: ExitReason
    at_s: float
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultStands:
    """An attempt that was given up because its machine was lost had finished: its result counts, and a later attempt is
    stopped."""

    run: RunId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A job that was not running is cancelled. (A running one is stopped first, and its `RunEnded` cancels it.)"""

    job: JobId
    at_s: float
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaused:
    job: JobId
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    job: JobId
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityChanged:
    job: JobId
    priority: int
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdated:
    """Its user changed its request. None: unchanged."""

    job: JobId
    at_s: float
    gpus: GpuRequest | None = None
    time_limit_s: float | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequeued:
    """An ended job is pending again; it continues with its files and checkpoints."""

    job: JobId
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedOutputs:
    """The result of copying the outputs of an ended job: their directory, or why the copy failed."""

    into: str = ""
    files: int = 0
    bytes: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsCopied:
    job: JobId
    at_s: float
    copied: CopiedOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopied:
    """The daemon's store has a copy of the job's checkpoint of `epoch`. With a `problem` it has none, so the job stays
    on the machine with its files. `shared_by`: machines that see the same directory."""

    job: JobId
    at_s: float
    epoch: int = 0
    bytes: int = 0
    problem: str = ""
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRewound:
    """The checkpoint of a new run is older than the last report: the job continues from `epoch`."""

    job: JobId
    epoch: int
    at_s: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRemoved:
    """An ended job is deleted from the record."""

    job: JobId
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsSkipped:
    """Nodes have files of jobs with ids up to this one that another database gave (for example one that was deleted).
    New ids begin above, so that no job finds files of another."""

    through: JobId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObserved:
    """A node was added, or its inventory changed. Its condition and the reason for it stay."""

    node: Node
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConditionChanged:
    node: str
    condition: NodeCondition
    at_s: float
    why: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContactChanged:
    """A machine fell silent, was lost or answers again. `why` is a sentence for people."""

    node: str
    contact: Contact
    at_s: float
    boot_id: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeaseWaived:
    """`waived`: the daemon stopped as planned, so the machine may keep its runs alive without a time limit, until a
    daemon gives it a lease that expires."""

    node: str
    waived: bool
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRemoved:
    node: str
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    name: str
    at_s: float
    placer: str = ""  # empty: unchanged
    options: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRemembered:
    """What the policy keeps for its next decision (for example Tiresias' promotions). Plain JSON values."""

    memory: Mapping[str, object]
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedsFitted:
    """Speeds were fitted to the measurements so far, for a decision. It changes no state. It is in the log because a
    fit depends on its time: a speed book that is read back fits at the same places, so its answers are the same."""

    at_s: float


JobEvent = (
    JobSubmitted
    | RunPlanned
    | RunPreparing
    | RunStarted
    | TrainingBegan
    | EpochEnded
    | CheckpointSeen
    | RunStopRequested
    | RunStopWithdrawn
    | StopAgreed
    | RunResized
    | RunEnded
    | ResultStands
    | JobCancelled
    | JobPaused
    | JobResumed
    | PriorityChanged
    | JobUpdated
    | JobRequeued
    | OutputsCopied
    | CheckpointCopied
    | JobRewound
    | JobRemoved
)
NodeEvent = NodeObserved | NodeConditionChanged | NodeContactChanged | NodeLeaseWaived | NodeRemoved
Event = JobEvent | NodeEvent | AccountEvent | IdsSkipped | PolicySet | PolicyRemembered | SpeedsFitted

EVENT_TYPES: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        JobSubmitted,
        RunPlanned,
        RunPreparing,
        RunStarted,
        TrainingBegan,
        EpochEnded,
        CheckpointSeen,
        RunStopRequested,
        RunStopWithdrawn,
        StopAgreed,
        RunResized,
        RunEnded,
        ResultStands,
        JobCancelled,
        JobPaused,
        JobResumed,
        PriorityChanged,
        JobUpdated,
        JobRequeued,
        OutputsCopied,
        CheckpointCopied,
        JobRewound,
        JobRemoved,
        IdsSkipped,
        NodeObserved,
        NodeConditionChanged,
        NodeContactChanged,
        NodeLeaseWaived,
        NodeRemoved,
        PolicySet,
        PolicyRemembered,
        SpeedsFitted,
        UserSet,
        UserRemoved,
        TokenIssued,
        TokenRevoked,
    )
}
"""Every kind of event by its name in the log. A released name never changes its meaning."""


_WITH_JOB = frozenset(kind for kind in EVENT_TYPES.values() if "job" in kind.__dict__)
_WITH_RUN = frozenset(kind for kind in EVENT_TYPES.values() if "run" in kind.__dict__)


def run_of(event: Event) -> RunId | None:
    """The run an event is about, if it is about one."""
    run: RunId | None = event.run if type(event) in _WITH_RUN else None  # type: ignore[union-attr]
    return run


def job_of(event: Event) -> JobId | None:
    """The job an event is about, if it is about one."""
    if (run := run_of(event)) is not None:
        return run.job
    job: JobId | None = event.job if type(event) in _WITH_JOB else None  # type: ignore[union-attr]
    return job
