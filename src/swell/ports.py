"""The only seam between Swell's mind and the world. Small, and each with one conformance suite (tests/contract).

Adapters see `core` and this file, nothing else of the package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from swell.core.decision import Decision, Grant, Layout
from swell.core.events import Event
from swell.core.evolve import made_fast
from swell.core.ids import JobId, RunId
from swell.core.job import Mount
from swell.core.observations import CheckpointKept, Observation
from swell.core.resources import Allocation, Node
from swell.core.snapshot import JobView, Snapshot, Speed
from swell.core.state import JobRecord, JobState, Run, State


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the epoch, for facts."""
        ...

    def monotonic_s(self) -> float:
        """Never goes back, for time-outs."""
        ...


class Random(Protocol):
    """The part of random.Random that solvers may use. Handed in, seeded."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def shuffle(self, x: list[int], /) -> None: ...


OptionValue = float | int | str | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting of a policy. A text default means text, with `numbers` a list of rising numbers ("3600, 36000")."""

    default: OptionValue
    doc: str
    low: float = float("-inf")
    high: float = float("inf")
    numbers: bool = False


class Policy(Protocol):
    """How many GPUs. Pure: the same input gives the same answer. See policies in docs/explanation.

    `elastic`: it changes sizes of running jobs. `weighs_restarts`: it has weighed what a change of size costs, so the
    layers leave its sizes of running jobs alone. `OPTIONS`: what a person may set about it."""

    @property
    def name(self) -> str: ...
    @property
    def elastic(self) -> bool: ...
    @property
    def weighs_restarts(self) -> bool: ...
    @property
    def OPTIONS(self) -> Mapping[str, Option]: ...  # noqa: N802 - a constant of the class
    def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: Random) -> Decision: ...


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A job with its grant, to be placed."""

    view: JobView
    grant: Grant
    target: Allocation | None = None  # where an earlier pass decided that it goes, while that is being freed


class Placer(Protocol):
    """Which GPUs. Pure. `wanted` in order of precedence: when not all fit, the last ones are left out."""

    @property
    def name(self) -> str: ...
    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout: ...


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """How much is left of a job: seconds at speed 1 (see `Curve`), as of `as_of_s`."""

    at_speed_1_s: float
    as_of_s: float
    sigma: float = 0.5  # relative standard deviation
    known: bool = False  # measured, or said by its user
    # Of a job whose length is only known as a distribution (log-normal; median 0: known better than that):
    length_median_1_s: float = 0.0  # of all its work
    length_sigma: float = 0.0  # of the logarithm
    done_1_s: float = 0.0  # of that, as of `as_of_s`
    start_s: float | None = None  # from planned to training, as jobs of its family took; None: nobody has measured it


class SpeedBook(Protocol):
    """What is known of how fast jobs are. Learns from events; the simulator has one that knows the truth.

    `speed` and `remaining` answer with the same object as long as nothing was learned, so that callers may cache on
    identity. `follows_records`: answers about a job change only when its record does."""

    @property
    def follows_records(self) -> bool: ...
    def learn(self, event: Event) -> None: ...
    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Speed: ...
    def remaining(self, job: JobRecord) -> Remaining: ...
    def alone(self, job: JobId) -> bool:
        """Sharing a GPU slows this job too much: it must have one of its own."""
        ...


class LastingBook(SpeedBook, Protocol):
    """A book that checkpoints hold, so that a restart forgets nothing."""

    @property
    def has_news(self) -> bool:
        """Something was learned that `SpeedsFitted` would show in its answers."""
        ...

    def keep(self) -> bytes: ...
    def restore(self, kept: bytes) -> bool:
        """Answer as the book that was kept. False, and empty, if these bytes are of another version, or none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An event with its number in the log."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Filter and page of the record of jobs. `group` is running, queued, ended or all."""

    group: str = "all"
    user: str = ""
    batch: str = ""
    ended_since_s: float = 0.0  # those that ended since then, or have not ended; 0: all
    after: JobId = 0  # page: ids below this (newest first); 0: from the newest
    limit: int = 100


class Store(Protocol):
    """The log is the truth; tables beside it are for reading. One writer. Every method blocks; `append` is called from
    one thread, the others from any."""

    @property
    def cluster_id(self) -> str:
        """Random, made with the database, the same as long as it lives: tells its runs and nodes from another's."""
        ...

    @property
    def epoch(self) -> int:
        """Of this writer: higher than of any that opened the database before."""
        ...

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        """Make these events durable, all or none; the first is numbered `first_seq`, which must follow the last one.
        Updates the tables that people read, in the same transaction. Raises StoreError (disk full, fenced, …); after
        one, `load` tells what is there: if contact was lost during the commit, it may have happened."""
        ...

    def prove_writable(self) -> None:
        """Write something that changes no fact, as durably as an event. Raises what `append` would."""
        ...

    def events(self, after_seq: int = 0, limit: int | None = None) -> Sequence[Stored]:
        """In order, those numbered above `after_seq` that are in the log."""
        ...

    def checkpoint(self, state: State, book: bytes = b"") -> None:
        """Keep a copy of the state as of `state.seq`, so that the next start replays only what came after, and what the
        speed book had learned by then. Hand over a copy (`core.state.copy_of`) if the state may change meanwhile."""
        ...

    @property
    def first_seq(self) -> int:
        """The number of the first event that is in the log; those before it were removed by `compact`."""
        ...

    def compact(self, before_s: float, limit: int) -> int:
        """Remove the oldest events, at most `limit` of them and none that happened at `before_s` or later, once
        checkpoints have proven to hold what they did. How many were removed; 0: there is nothing to do now."""
        ...

    def book(self) -> tuple[int, bytes]:
        """The speed book of the latest checkpoint that has one, and the number of its last event; (0, b"") if none."""
        ...

    def load(self) -> State:
        """Latest good checkpoint plus the events after it. The caller owns the answer."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A run with whose it was and what it held when: (since when, what), one after the other."""

    run: Run
    name: str
    user: str
    held: tuple[tuple[float, Allocation], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What jobs of one user and team that ended in one state took, all together."""

    user: str
    team: str
    state: JobState
    jobs: int
    ran_s: float
    gpu_s: float


class Record(Protocol):
    """What the store knows of jobs, also of those that are no longer in memory. Implemented by every store."""

    def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        """Newest first."""
        ...

    def job(self, job: JobId) -> JobRecord | None: ...

    def runs(self, job: JobId) -> Sequence[Run]:
        """All attempts, the first one first."""
        ...

    def ended_before(self, before_s: float, limit: int) -> Sequence[JobId]:
        """Jobs that ended before this time, those with the lowest ids first. Looks at the `limit` lowest of each state
        only: it must be cheap in a long history."""
        ...

    def consumed_since(self, since_s: float) -> Sequence[Consumption]:
        """By jobs that ended since this time, each counted with all its attempts."""
        ...

    def runs_between(self, from_s: float, to_s: float, limit: int) -> Sequence[PastRun]:
        """Runs of any job that held something within these times; those planned last come first, at most `limit`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One process (or pod) of a run, as a plain value: golden-tested without a machine."""

    rank: int
    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    gpus: tuple[int, ...] = ()
    role: str = "worker"
    shell_env: bool = False  # env says which programs there are: the node's own PATH and the like do not apply
    path_first: tuple[str, ...] = ()  # directories that come before all others on its PATH
    image: str = ""
    mounts: tuple[Mount, ...] = ()
    ports: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    memory_mib: int = 0
    user: str = ""  # of the machine, whose process it is; empty: the one that starts it
    container: Mapping[str, Any] = field(default_factory=dict)
    """What its node's container runtime needs to know, if it has an image (`executors.container.container_of`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What should be running: all workers of one run."""

    run: RunId
    workers: tuple[Worker, ...]
    grace_s: float
    discovery: str = ""  # host discovery file content, for launchers that scale in place
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Bytes of one worker's log from `offset`. `end`: the worker has ended and nothing follows."""

    data: bytes
    offset: int
    next_offset: int
    end: bool
    age_s: float = 0.0  # since the log last grew; 0: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A plain file of a job's working copy, by its path from the job's working directory."""

    path: str
    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTree:
    """`skipped`: files that have no readable name or cannot be looked at. `whole`: there are no others."""

    files: tuple[JobFile, ...]
    skipped: int = 0
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes of a file from some offset. `inode`: pieces with different ones are of different files."""

    data: bytes
    size: int  # of the whole file
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A run to be started, or resized in place: its job with the planned run, and the nodes of its allocation as they
    were declared. The executor makes of it what its machines need (directories, address of the daemon, files)."""

    record: JobRecord
    nodes: Mapping[str, Node]
    home: Node | None = None  # the machine that has the job's checkpoints, if it is another one

    @property
    def run(self) -> RunId:
        assert self.record.run is not None, "only a planned run can be ordered"
        return self.record.run.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The machines have taken it on. What becomes of it is observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The machines answered: no. Nothing of it runs there, and nothing of it will start by itself."""

    why: str
    errno: int | None = None  # of the system call that failed, if one did


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """No answer: it may have happened or not. It proves nothing about the run, and the command is still owed."""

    why: str


Answer = Done | Refused | Unknown


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing; the machine can be used
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a machine was checked for before it is added. `words` and `fix` are for people."""

    name: str
    verdict: Verdict
    words: str
    fix: str = ""


class Machines(Protocol):
    """Machines that a person adds, by whatever way they are reached."""

    def check(self, declared: Node) -> AsyncIterator[Check | Node]:
        """Checks as they are made; then, if none failed, the node as it is to be added."""
        ...

    async def clean(self, node: Node) -> Answer:
        """Delete all that Swell keeps on a machine that was removed."""
        ...


class Files(Protocol):
    """Files of working copies, on the machines where jobs ran: with several machines, on the first. An order names the
    job, its latest run and that run's nodes. Raises OSError if the machine does not answer, or answers: no; and
    NotFound if files cannot be read there at all."""

    async def tree(self, order: Order) -> JobTree: ...

    async def content(self, order: Order, path: str, offset: int, limit: int) -> Piece:
        """At most `limit` bytes, which may be cut further. `path` as `tree` names it."""
        ...


class Checkpoints(Protocol):
    """Checkpoints of running jobs, on their way to the daemon's store."""

    async def copy(self, order: Order, others: Mapping[str, Node]) -> CheckpointKept | None:
        """Of the run's newest finished checkpoint, once the store has it; None: there is nothing new. `others`:
        machines that may see the same directory. Raises OSError if the machine does not answer, or answers: no."""
        ...

    async def copied_jobs(self) -> Sequence[JobId]:
        """Jobs of which the store has something."""
        ...

    async def forget_copy(self, job: JobId) -> None: ...


class RunLogs(Protocol):
    """What workers printed, wherever it is kept."""

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        """Raises OSError if the machine that has the log cannot be reached."""
        ...

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        """Where in that log begins what was written within the last `age_s`, at the start of a line: a few seconds
        early, never late. 0 if that is not known. Raises as `log` does."""
        ...


class Executor(RunLogs, Protocol):
    """Starts and stops runs on machines. Commands are idempotent by run id: sent twice, done once. A command never
    raises and never outlasts its time-out; it ends in an `Answer`. What machines see comes back from `observe`."""

    async def launch(self, order: Order) -> Answer:
        """Start all workers, or find them started."""
        ...

    async def resize(self, order: Order) -> Answer:
        """In place, for launchers that can."""
        ...

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        """SIGTERM, or SIGKILL to everything that belongs to the run. What has not started yet never will. Unknown or
        ended runs: nothing, and done."""
        ...

    def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        """First the truth about `known` runs (adoption after a restart; those never launched are not mentioned), then
        `Adopted` if there were any, then everything that happens, until cancelled. Asking for the next one means that
        the last one is on record. A machine that cannot be reached delays only its own runs."""
        ...

    async def remove(self, job: JobId) -> Answer:
        """Delete all that nodes keep of an ended job: what its runs left, its working copy, its checkpoints; nothing
        that its user named. Does nothing while one of its runs is not over. May be cut short, and sent again."""
        ...
