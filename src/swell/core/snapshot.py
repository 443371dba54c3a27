"""The snapshot that a pass decides on: a frozen value of jobs and nodes, with `now_s` inside.

Built by `plan.snapshotter` from state and speed models; read by policies and placers. It has everything that a decision
may depend on, and nothing else. The simulator and the daemon use the same type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from swell.core.capacity import cpus_of
from swell.core.evolve import made_fast
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.limits import Limits
from swell.core.resources import GPU_MILLI, Allocation, Cap, Node
from swell.core.state import JobState
from swell.core.unsaved import Unsaved

Curve = tuple[float, ...]
"""S(0), S(1), … S(max): speed on 0, 1, … GPUs of one type, on as few nodes as possible, relative to the job's
reference (one GPU of its reference type, usually S(1) == 1). S(0) is 0; never decreasing. Not always concave: a size
that needs a second node may bring nothing."""


class Speed(Protocol):
    """The speed of one job on given GPUs. Implemented by `speed`, by the simulator's oracle, and by tests."""

    def curve(self, gpu_type: str) -> Curve:
        """S(0..max of the job) on that GPU type at present: policies distribute GPUs by it. It returns the same object
        until something new is learned."""
        ...

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        """Speed on this many GPUs spread over this many nodes, averaged over the remaining work (unit of `curve`)."""
        ...


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job that has not ended, as policies and placers see it.

    `n`, the granted amount, counts GPUs; for a job that needs a share of a GPU or none it is 1 (runs) or 0. `gpu_milli`
    is the cost of one of those n: 1000 for whole GPUs, less for a share, 0 for CPU-only jobs.
    """

    id: JobId
    spec: JobSpec
    state: JobState
    submitted_s: float
    speed: Speed
    priority: int = 0
    team: str = ""
    sizes: tuple[int, ...] = (1,)  # allowed n > 0, ascending
    requested: int = 1  # what a policy that is not elastic gives
    gpu_milli: int = GPU_MILLI
    share_memory_mib: int = 0  # reserved on its GPU when shared: estimate, then measured peak with margin
    gpu_types: tuple[str, ...] = ()  # types in the cluster that it may use, preferred ones first
    allocation: Allocation | None = None  # held now (starting, running, stopping)
    held_n: int = 0  # n of `allocation`
    stopping: bool = False  # its allocation will be free, so changing its size costs nothing more
    pinned: bool = False  # runs and may not be stopped: keeps its allocation
    remaining_1_s: float = 0.0  # remaining time at speed 1, as of `as_of_s`
    as_of_s: float = 0.0
    rate_now: float = 0.0  # speed at which remaining_1_s shrinks since then; 0 when it does not run
    length_median_1_s: float = 0.0  # of all its work, if that is known only as a distribution; else 0
    length_sigma: float = 0.0  # of its logarithm
    done_1_s: float = 0.0  # of that length, as of `as_of_s`
    restart_cost_s: float = 30.0  # time lost by a stop and start; 0 for jobs that scale in place
    unsaved: Unsaved | None = None  # work that a stop would wait for or lose; None: negligible
    attained_gpu_s: float = 0.0  # service, as of as_of_s; grows with held_n while it runs
    first_started_s: float | None = None
    waiting_since_s: float | None = None  # start of the current wait; None while it holds something
    waited_s: float = 0.0  # before the current wait
    ran_s: float = 0.0  # before the current run
    changed_s: float = 0.0  # last start, resize or move of the current run
    migrated_s: float = 0.0  # last move
    left_alone_until_s: float = 0.0  # no resize or move before: the last was withdrawn, as it reached no checkpoint
    withdrawable: bool = False  # stopping to be resized or moved, and the stop can still be withdrawn
    last_nodes: tuple[str, ...] = ()  # of the last run: data and caches may still be there
    only_on: tuple[str, ...] = ()  # the machines that have its files, if it cannot go elsewhere; empty: any
    weight: float = 1.0
    deadline_s: float = 0.0

    @property
    def min(self) -> int:
        return self.sizes[0]

    @property
    def max(self) -> int:
        return self.sizes[-1]

    def settled_at_s(self, min_run_s: float) -> float:
        """When it may be resized or moved again."""
        return max(self.changed_s + min_run_s, self.left_alone_until_s)

    def stop_cost_s(self, now_s: float) -> float:
        """The cost of a stop now and the start after it: the restart, and the wait or lost work of the stop (none if it
        is stopping already)."""
        if self.unsaved is None or self.stopping:
            return self.restart_cost_s
        return self.restart_cost_s + self.unsaved.stop_cost_s(now_s)

    def curve(self, gpu_type: str) -> Curve:
        return self.speed.curve(gpu_type)

    def remaining_s(self, now_s: float) -> float:
        """Remaining time at speed 1. Never zero: an overdue job has not ended yet."""
        done = self.rate_now * max(0.0, now_s - self.as_of_s)
        return max(self.remaining_1_s - done, 0.02 * self.remaining_1_s, 1e-3)

    def service_s(self, now_s: float) -> float:
        """Attained GPU-seconds."""
        if not self.held_n:
            return self.attained_gpu_s
        return self.attained_gpu_s + max(0.0, now_s - self.as_of_s) * self.held_n * self.gpu_milli / GPU_MILLI

    def waiting_s(self, now_s: float) -> float:
        return 0.0 if self.waiting_since_s is None else max(0.0, now_s - self.waiting_since_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a team is entitled to while others wait; more than that is borrowed and given back when asked for."""

    gpus: int  # entitled to while others wait
    borrow: bool = True  # more than that while no other team needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person may set about decisions in general. Options of one policy are in `policy`."""

    starvation_s: float = 24 * 3600.0  # passed over for longer: goes ahead of its order
    min_run_s: float = 10.0  # no resize or move of a run sooner after its last change
    move_interval_s: float = 600.0  # no second move of an unchanged job sooner
    max_moves: int = 8  # of unchanged jobs, in one pass
    share_overload_milli: int = GPU_MILLI  # 1200 tolerates 20 % more utilisation than a GPU has
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by team
    limits: Limits = field(default_factory=Limits)  # of every user, see below
    limits_of: Mapping[str, Limits] = field(default_factory=dict)  # by user, in place of `limits`
    budgets: Mapping[str, float] = field(default_factory=dict)  # GPU hours per calendar month (UTC), by team
    policy: Mapping[str, float | int | str | bool] = field(default_factory=dict)  # what is set about the policy

    def limits_for(self, user: str) -> Limits:
        return self.limits_of.get(user, self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one decision can distribute."""

    gpu_milli: Mapping[str, int]  # by GPU type, sorted by name; free or held by Swell's runs, not used by others
    cpus: int = 0
    memory_mib: int = 0

    def gpus(self, gpu_type: str) -> int:
        return self.gpu_milli.get(gpu_type, 0) // GPU_MILLI


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`jobs` in order of submission (then id); `nodes` by name, without lost ones."""

    now_s: float
    jobs: tuple[JobView, ...]
    nodes: tuple[Node, ...]
    capacity: Capacity
    options: Options = field(default_factory=Options)
    month_gpu_s: Mapping[str, float] = field(default_factory=dict)  # used this month, by team with a budget
    caps: tuple[Cap, ...] = ()  # limits of all jobs of a namespace together; see `core.caps`
    served: tuple[JobView, ...] = ()  # not to be decided: this pass has decided about them before; see `restricted`
    _by_id: Mapping[JobId, JobView] | None = field(default=None, init=False, repr=False, compare=False)
    _holding: tuple[JobView, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def taken(
        cls,
        now_s: float,
        views: dict[JobId, JobView],
        nodes: tuple[Node, ...],
        capacity: Capacity,
        options: Options,
        month_gpu_s: Mapping[str, float],
        caps: tuple[Cap, ...] = (),
    ) -> Snapshot:
        """A snapshot of these views, in their order."""
        snapshot = cls(
            now_s=now_s,
            jobs=tuple(views.values()),
            nodes=nodes,
            capacity=capacity,
            options=options,
            month_gpu_s=month_gpu_s,
            caps=caps,
        )
        object.__setattr__(snapshot, "_by_id", views)
        return snapshot

    @property
    def by_id(self) -> Mapping[JobId, JobView]:
        """The jobs, in their order."""
        if self._by_id is None:
            object.__setattr__(self, "_by_id", {job.id: job for job in self.jobs})
        assert self._by_id is not None
        return self._by_id

    @property
    def holding(self) -> tuple[JobView, ...]:
        """Jobs with an allocation, in their order, so that a pass need not look at thousands that are pending."""
        if self._holding is None:
            object.__setattr__(self, "_holding", tuple(filter(_held_n, self.jobs)))
        assert self._holding is not None
        return self._holding

    def restricted(
        self,
        jobs: tuple[JobView, ...],
        capacity: Capacity,
        served: tuple[JobView, ...] | None = None,
        caps: tuple[Cap, ...] | None = None,
    ) -> Snapshot:
        """The same moment with fewer jobs and less capacity: the layers around a policy restrict by it what the policy
        decides. A policy that limits the number of running jobs must also count those in `served`."""
        narrower = Snapshot(
            now_s=self.now_s,
            jobs=jobs,
            nodes=self.nodes,
            capacity=capacity,
            options=self.options,
            month_gpu_s=self.month_gpu_s,
            caps=self.caps if caps is None else caps,
            served=self.served if served is None else served,
        )
        if jobs is self.jobs:
            object.__setattr__(narrower, "_by_id", self._by_id)
            object.__setattr__(narrower, "_holding", self._holding)
        return narrower


_held_n = attrgetter("held_n")


def capacity_of(nodes: tuple[Node, ...]) -> Capacity:
    """The total of all schedulable nodes, free or held by Swell's runs."""
    return total_capacity([_capacity_of_node(node) for node in nodes if node.schedulable])


def _capacity_of_node(node: Node) -> Capacity:
    counts = Counter(gpu.type for gpu in node.usable_gpus())
    gpu_milli = {gpu_type: GPU_MILLI * count for gpu_type, count in counts.items()}
    return Capacity(gpu_milli=gpu_milli, cpus=cpus_of(node), memory_mib=node.memory_mib)


def total_capacity(parts: Sequence[Capacity]) -> Capacity:
    gpu_milli: Counter[str] = Counter()
    for part in parts:
        gpu_milli.update(part.gpu_milli)
    return Capacity(
        gpu_milli=dict(sorted(gpu_milli.items())),
        cpus=sum(part.cpus for part in parts),
        memory_mib=sum(part.memory_mib for part in parts),
    )
