"""The current state: frozen records of jobs, runs and nodes, in the containers of one `State`.

The owner of a `State` replays events into it (the daemon's loop, the simulator). Its records are frozen, so a reader
may keep one; only `lifecycle.apply` changes the containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from swell.core.accounts import Token, User
from swell.core.events import VOLUNTARY, CopiedOutputs, ExitReason, Saves, StopWhy
from swell.core.ids import JobId, RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, GpuKey, Node

KEEP_ENDED = 10_000
"""Number of ended jobs that stay in memory; older ones are read from the store's tables."""

RECENT = 4096
"""`State.recent` covers at least this many of the last events."""


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.LOST})
HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
"""States in which a job's run holds its allocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    why: StopWhy
    at_s: float
    reason: str = ""
    by: str = ""
    now: bool = False  # killed at once
    agreed: tuple[int, int] | None = None  # (epoch, step) before which all ranks leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """A resize or move that was withdrawn, and until when none is tried again."""

    why: StopWhy
    at_s: float
    change: str = ""  # the planned change: "1 -> 2 GPUs"
    reason: str = ""  # why it was withdrawn
    until_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The current (or last) attempt of a job."""

    id: RunId
    allocation: Allocation
    planned_s: float
    reason: str = ""
    preparing: str = ""  # what a node fetches before the start, with its progress
    prepared_s: float = 0.0  # when that was last reported
    started_s: float | None = None
    began_s: float | None = None  # the library's first epoch of this run
    changed_s: float = 0.0  # when the allocation was last changed
    epochs_before: int = 0
    stop_cost_s: float = 0.0  # time that stopping the run before this one cost
    last_epoch_s: float | None = None  # when the last epoch of this run ended
    saved_s: float | None = None  # when this run last wrote a checkpoint
    saves: Saves = Saves.EPOCHS
    boundary_every_s: float = 0.0  # expected time between two checkpoints; 0: unknown
    lost_s: float = 0.0  # work lost with its end: since its last checkpoint
    stop: StopRecord | None = None
    withdrawn: Withdrawal | None = None  # the last stop that was withdrawn, until the next checkpoint
    agreed: tuple[int, int] | None = None  # of a stop that was withdrawn: its ranks still leave at this position
    ended_s: float | None = None
    exit_reason: ExitReason | None = None
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """The latest copy of a job's checkpoint in the daemon's store; with a `problem` there is none."""

    epoch: int
    at_s: float
    bytes: int = 0
    problem: str = ""
    shared_by: tuple[str, ...] = ()  # machines that see the directory of its files


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    id: JobId
    spec: JobSpec
    submitted_s: float
    state: JobState = JobState.QUEUED
    key: str = ""
    batch: str = ""
    priority: int = 0
    paused: bool = False
    run: Run | None = None  # current while HOLDING, else the last one
    attempts: int = 0
    failures: int = 0
    lost_runs: int = 0
    result_of: int = 0  # the attempt that finished although its machine had been given up as lost; 0: none
    kills: int = 0  # killed runs that do not count as failures: the job resumed from a checkpoint
    preemptions: int = 0
    resizes: int = 0
    migrations: int = 0
    uses_library: bool = False  # specified, or seen by its reports
    unit: str = "epoch"  # what the next three count: epoch, step, token or sample
    epochs_done: int = 0
    epochs_saved: int = 0  # of those, the ones that a checkpoint covers
    epochs_total: int = 0
    not_before_s: float = 0.0  # back-off after a failure
    first_started_s: float | None = None
    queued_since_s: float = 0.0
    waited_s: float = 0.0  # in the queue, up to the current wait
    ran_s: float = 0.0  # over ended runs
    gpu_s: float = 0.0  # attained service over ended runs and allocations
    lost_s: float = 0.0  # work lost with the ends of runs: each since its last checkpoint
    restart_cost_s: float | None = None  # measured; None: never yet
    gpu_memory_mib: int = 0  # measured peak of one GPU
    metrics: Mapping[str, float] = field(default_factory=dict)
    ended_s: float | None = None
    message: str = ""  # why it ended as it did, for people
    outputs: CopiedOutputs | None = None  # of a job that ended with `outputs` in its spec
    files_on: str = ""  # the machine with its checkpoints: the first node of the last run that started
    copy: CheckpointCopy | None = None
    rewound: str = ""  # why it was last set back, and to which epoch

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def holding(self) -> bool:
        return self.state in HOLDING

    @property
    def allocation(self) -> Allocation | None:
        return self.run.allocation if self.run is not None and self.holding else None

    @property
    def may_be_stopped(self) -> bool:
        return self.spec.may_be_stopped or (self.uses_library and self.spec.preemptible != "never")

    @property
    def resumable(self) -> bool:
        """Whether it can continue from a checkpoint of its own."""
        return self.spec.resumable or self.uses_library

    @property
    def has_saved(self) -> bool:
        """Whether a checkpoint of it is known to exist."""
        seen = self.run is not None and self.run.saved_s is not None
        return self.resumable and bool(self.files_on) and (self.epochs_saved > 0 or self.copy is not None or seen)

    @property
    def may_be_resized(self) -> bool:
        """Whether the number of GPUs of a run may change."""
        return self.may_be_stopped or self.spec.scales_in_place


@dataclass(slots=True)
class State:
    """The result of all events so far. `seq` is the number of the last event applied."""

    seq: int = 0
    jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    active: dict[JobId, None] = field(default_factory=dict)  # not ended, in order of submission
    ended: dict[JobId, None] = field(default_factory=dict)  # in order of ending, at most KEEP_ENDED
    keys: dict[str, JobId] = field(default_factory=dict)  # idempotency keys of jobs in `jobs`
    nodes: dict[str, Node] = field(default_factory=dict)
    last_job: JobId = 0  # the next id is above it
    skipped: tuple[tuple[JobId, JobId], ...] = ()  # ranges of lower ids that were never given here: first and last
    policy: str = ""
    placer: str = ""
    policy_options: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    policy_memory: Mapping[str, object] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)  # by name
    tokens: dict[str, Token] = field(default_factory=dict)  # by id
    counts: dict[str, int] = field(default_factory=dict)  # ended jobs by state, over all time
    lost_s: float = 0.0  # work lost with the ends of runs, over all time
    month_s: float = 0.0  # begin of the calendar month (UTC) of `month_gpu_s`
    month_gpu_s: dict[str, float] = field(default_factory=dict)  # by team, of runs that ended or changed since
    recent: list[JobId | None] = field(default_factory=list, compare=False)  # the jobs of the last events


def team_of(spec: JobSpec) -> str:
    """The team whose quota and budget a job counts for; without a team, its user."""
    return spec.team or spec.user


def unsaved_since_s(run: Run, default_s: float) -> float:
    """Since when the run's work is in no checkpoint: since the last one, else since its begin; `default_s` if it has
    not begun."""
    for since_s in (run.saved_s, run.began_s, run.started_s):
        if since_s is not None:
            return since_s
    return default_s


def may_be_withdrawn(record: JobRecord) -> bool:
    """Whether a requested resize or move can still be withdrawn. Not after the ranks have agreed on a stop position,
    because one may have left, nor after a signal to a run that has no checkpoint to wait for. Exception: a run that
    saves by a rule of its own agrees long before its next checkpoint, so its stop can be withdrawn after that."""
    run = record.run
    stop = run.stop if run is not None else None
    if run is None or stop is None or record.state is not JobState.STOPPING:
        return False
    if stop.why not in VOLUNTARY or (stop.agreed is not None and run.saves is not Saves.OWN):
        return False
    if run.began_s is not None and run.began_s <= stop.at_s:
        return True
    waits = bool(record.spec.checkpoint_dir) and run.started_s is not None and run.started_s <= stop.at_s
    return waits and run.began_s is None and (run.saved_s is None or run.saved_s <= stop.at_s)


def held_gpus(state: State) -> set[GpuKey]:
    held = (state.jobs[job].allocation for job in state.active)
    return {gpu for allocation in held if allocation is not None for gpu in allocation.gpu_keys}


def was_given(state: State, job: JobId) -> bool:
    """Whether there is, or was, a job with this id."""
    return 1 <= job <= state.last_job and not any(first <= job <= last for first, last in state.skipped)


def last_given(state: State) -> JobId:
    """The id of the latest job; 0 if there was none yet."""
    job = state.last_job
    for first, last in reversed(state.skipped):
        if last < job:
            break
        job = first - 1
    return job


def copy_of(state: State) -> State:
    """A copy with containers of its own; the frozen records are shared. Cheap, and safe to pass on."""
    return replace(
        state,
        jobs=dict(state.jobs),
        active=dict(state.active),
        ended=dict(state.ended),
        keys=dict(state.keys),
        nodes=dict(state.nodes),
        users=dict(state.users),
        tokens=dict(state.tokens),
        counts=dict(state.counts),
        month_gpu_s=dict(state.month_gpu_s),
        recent=[],
    )
