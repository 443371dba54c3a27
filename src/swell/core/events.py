"""Facts. Everything that happens is one of these values, appended to the store; state is `replay(events)`.

An event says what happened and when (`at_s`, seconds since the epoch), never what to do about it. Reports of an old
attempt are recorded like any other and change nothing. Field types are plain, so that any encoder can carry them.
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
"""Stops for the job's own sake: they wait for its next checkpoint or are withdrawn, and never kill."""


class Saves(StrEnum):
    """Where a run writes its checkpoints, and so where it can stop without losing work."""

    EPOCHS = "epochs"  # after each epoch
    ANYWHERE = "anywhere"  # wherever it is asked to stop
    OWN = "own"  # by a rule of its own, such as every 500 steps or 10 minutes


class ExitReason(StrEnum):
    """Why a run ended. `user-error`, `out-of-memory`, `killed` and `start-failed` count as failures of the job."""

    FINISHED = "finished"
    STOPPED = "stopped"  # as asked; `StopWhy` says why
    USER_ERROR = "user-error"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"  # by a signal that Swell did not send
    NODE_LOST = "node-lost"
    SHIM_LOST = "shim-lost"  # what held the process died with it; no exit record
    START_FAILED = "start-failed"  # the executor could not start it (missing script, no such user, ...)
    NODE_FULL = "node-full"  # its node had no room to start it (disk, memory): it waits, and is tried again


EXIT_STOPPED = 85
"""Exit code of the in-job library: it left at a checkpoint, as asked; the job goes on in its next attempt."""


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
    """Decided and durable, before anything is started. `reason` is a sentence for people."""

    run: RunId
    allocation: Allocation
    at_s: float
    reason: str = ""


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class RunPreparing:
    """A node fetches what the run needs first (its image); `detail` is how far that is. Empty: it is done."""

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
    """The in-job library is about to start its first epoch of this run: from here on the job can stop and resume."""

    run: RunId
    at_s: float
    epoch: int = 0
    epochs: int = 0  # as the training code knows it; 0: unset
    unit: str = "epoch"  # what `epoch` and `epochs` count: epoch, step, token or sample
    saves: Saves | None = None  # None: unset, so EPOCHS if it counts epochs, else ANYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How a job that adapts its batch size split it, what its gradients showed, and the bounds of its choice."""

    initial: int  # its user's batch size: what progress is counted in
    largest: int
    local: int  # samples of one GPU in one micro-step
    accumulate: int = 0  # micro-steps before the one that synchronises
    local_min: int = 1
    local_max: int = 0  # what one GPU can take; 0: unset
    sync_s: float = 0.0  # of a step, beyond computing: waiting for gradients of others
    grad_sqr: float = 0.0  # |G|²: squared norm of the gradient
    grad_var: float = 0.0  # tr(Σ): variance of one sample's gradient; both 0: not known yet


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """One or several whole epochs, summed up (short epochs are reported together). What speed models learn from.
    A training that counts in steps, tokens or samples (`TrainingBegan.unit`) reports those in place of epochs.

    A run whose first epoch is long reports once from within it, so that nobody waits for its end to know the speed:
    then `count` is 0, nothing has ended, and `epoch_s` is what the whole epoch will take."""

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
    epochs: int = 0  # how many in all, as the log of a script without the library says; 0: unset
    saves: Saves | None = None  # None: as before


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
    now: bool = False  # killed at once, without its grace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopWithdrawn:
    """A resize or move is given up: no place to stop was found, or what it was for is gone. The run goes on as it is.
    Never after `StopAgreed`: from then on ranks may have left."""

    run: RunId
    at_s: float
    reason: str = ""
    until_s: float = 0.0  # no resize or move is tried again before then, or before its next checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAgreed:
    """All ranks know where to stop: before `step` of `epoch`. Durable before any rank leaves."""

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
    """An attempt that was given up with its machine had finished before: its result is the job's, and whatever was
    started since is stopped."""

    run: RunId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A job that was not running is given up. (A running one is stopped; its run's end says cancelled.)"""

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
    """Its user changed what it asks for. None: as before."""

    job: JobId
    at_s: float
    gpus: GpuRequest | None = None
    time_limit_s: float | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequeued:
    """An ended job waits again, to go on with the files and checkpoints that it has."""

    job: JobId
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedOutputs:
    """Result of copying the outputs of an ended job: where they are, or why the copy failed."""

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
    """The daemon's store has a copy of the job's checkpoint as of `epoch`. With a `problem` it has none, and the job
    stays where its files are. `shared_by`: machines that see the same directory."""

    job: JobId
    at_s: float
    epoch: int = 0
    bytes: int = 0
    problem: str = ""
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRewound:
    """The checkpoint that a run finds is older than what had been reported: the job goes on from `epoch`."""

    job: JobId
    epoch: int
    at_s: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRemoved:
    """An ended job is taken out of the record, as its owner asked."""

    job: JobId
    at_s: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsSkipped:
    """Nodes keep files of jobs with ids up to this one that another database gave (the one before this was deleted,
    say): this one begins above, so that no job finds files of another."""

    through: JobId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObserved:
    """A node was added, or its inventory changed. Condition and reason are kept from before."""

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
    """The daemon left on purpose: the machine's runs may go on alone, without a limit (`waived`), until a daemon has
    given it a lease with an end again."""

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
    """What the policy wants to find again at its next decision (Tiresias' promotions, say). Plain JSON values."""

    memory: Mapping[str, object]
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedsFitted:
    """Speeds were fitted to what had been measured by then, for a decision. Changes no state; it is in the log because
    a fit depends on when it is made, so that a book that is read back answers as the one before it did."""

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
"""Every kind of event by its name in the log. A name, once released, never changes its meaning."""


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
