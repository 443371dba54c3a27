"""Takes the snapshot that a pass decides on, from the state and the speed book. Pure; unchanged views are reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from swell.core.budgets import used_gpu_s
from swell.core.capacity import accepts_type, share_milli
from swell.core.caps import caps_of
from swell.core.decision import Reason
from swell.core.evolve import maker
from swell.core.ids import JobId
from swell.core.job import JobSpec, Launcher
from swell.core.resources import GPU_MILLI, Cap, Contact, Node, NodeCondition, gpus_per_node
from swell.core.snapshot import Capacity, JobView, Options, Snapshot, Speed, capacity_of, total_capacity
from swell.core.state import HOLDING, JobRecord, JobState, State, may_be_withdrawn, team_of
from swell.core.staying import may_stay, stay_of
from swell.core.unsaved import Unsaved, charged
from swell.placement.sharing import MEMORY_MARGIN_PERCENT
from swell.plan.held_back import HeldBack, lost_a_machine
from swell.plan.limits import last_starts_s, limits_running, over_running
from swell.ports import Remaining, SpeedBook

DEFAULT_RESTART_COST_S = 30.0
_make_view = maker(JobView)


def as_scheduled(node: Node) -> Node | None:
    """A node as decisions see it. One that does not answer counts as cordoned: no run there is stopped, moved or
    resized, and no new one is placed. So does one that its own cluster manager has closed, unless Swell drains it.
    None: the node is lost."""
    if node.condition is NodeCondition.LOST or node.contact is Contact.LOST:
        return None
    closed = bool(node.closed) and node.condition is NodeCondition.READY
    return replace(node, condition=NodeCondition.CORDONED) if closed or node.contact is not Contact.HERE else node


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a view that depends only on the job's spec and the nodes."""

    team: str
    sizes: tuple[int, ...]
    requested: int
    gpu_types: tuple[str, ...]
    whole: bool  # it uses whole GPUs, not a share of one or none
    resizable: bool = True


_NO_FRAME: tuple[None, None] = (None, None)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The facts about nodes that views depend on. It stays equal if only measured use or a condition changes."""

    gpus_per_node: dict[str, int]
    gpu_memory_mib: int  # of the smallest GPU; 0: not known

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.gpus_per_node)


class Snapshotter:
    """Takes snapshots. It holds only a cache: a new snapshotter gives the same answers.

    A view is rebuilt when a field of its job's record that views depend on has changed, or when the book returns other
    objects. A book with `follows_records = True` changes its answers only with the record, so it is asked only then."""

    def __init__(
        self, book: SpeedBook, restart_cost_s: float = DEFAULT_RESTART_COST_S, *, charge_unsaved: bool = True
    ) -> None:
        """`charge_unsaved` False: decisions are made as if every run could stop at once without losing work."""
        self._book = book
        self._charge_unsaved = charge_unsaved
        self._ask_always = not book.follows_records
        self._restart_cost_s = restart_cost_s
        self._records: dict[JobId, JobRecord] = {}  # those of the views, in the order of `State.active`
        self._views: dict[JobId, JobView] = {}  # in the same order
        self._frames: dict[JobId, tuple[JobSpec, Frame]] = {}
        self._matters: dict[JobId, tuple[object, ...]] = {}  # the fields of those records that views depend on
        self._answers: dict[JobId, tuple[Speed, Remaining]] = {}  # of the book, as used in the views
        self._conditional: dict[JobId, None] = {}  # may have to wait even if GPUs are free
        self._state: State | None = None  # of the last snapshot
        self._seq = 0  # of the last event in it
        self._known: tuple[Node, ...] | None = None
        self._nodes: tuple[Node, ...] = ()
        self._capacity = capacity_of(())
        self._caps: tuple[Cap, ...] = ()
        self._parts: dict[str, tuple[Node, Capacity, Cluster]] = {}  # of each node, by name
        self._cluster = Cluster({}, 0)

    def branch(self, state: State, book: SpeedBook) -> Snapshotter:
        """A snapshotter for a copy of the last state, with the same cache. `book` must give the same answers as the
        book of this one for everything that has not changed."""
        other = copy(self)
        other._book, other._state = book, state
        other._ask_always = not book.follows_records
        other._records, other._views, other._frames = dict(self._records), dict(self._views), dict(self._frames)
        other._matters, other._answers = dict(self._matters), dict(self._answers)
        other._conditional, other._parts = dict(self._conditional), dict(self._parts)
        return other

    def answers(self) -> dict[JobId, tuple[Speed, Remaining]]:
        """The book's answers for the jobs in the last snapshot and those held back from it."""
        return dict(self._answers)

    def take(self, state: State, now_s: float, options: Options) -> tuple[Snapshot, dict[JobId, Reason]]:
        """The snapshot of all jobs that may run now, and for each other job why it may not."""
        self._look_at_nodes(state)
        self._look_at_jobs(state)
        held_back = self._held_back(state, now_s)
        self._hold_to_limits(held_back, state, options)
        views = dict(self._views)
        for job in held_back:
            del views[job]
        month_gpu_s = used_gpu_s(state, options.budgets, now_s) if options.budgets else {}
        taken = Snapshot.taken(now_s, views, self._nodes, self._capacity, options, month_gpu_s, self._caps)
        return taken, held_back

    def _look_at_nodes(self, state: State) -> None:
        """Read the nodes that changed. Views are rebuilt only if the facts about nodes that they depend on changed."""
        known = tuple(state.nodes.values())
        if known == self._known:
            return
        self._known = known
        self._caps = caps_of(known)  # also those that a lost node reported
        nodes = tuple(seen for _, node in sorted(state.nodes.items()) if (seen := as_scheduled(node)) is not None)
        if nodes == self._nodes:
            return
        self._nodes = nodes
        self._parts = {node.name: self._part(node) for node in nodes}
        self._capacity = total_capacity([capacity for _, capacity, _ in self._parts.values()])
        cluster = _cluster([part for _, _, part in self._parts.values()])
        if cluster != self._cluster:
            self._cluster = cluster
            self._forget_all()

    def _part(self, node: Node) -> tuple[Node, Capacity, Cluster]:
        before = self._parts.get(node.name)
        if before is not None and before[0] is node:
            return before
        smallest = min((gpu.memory_mib for gpu in node.gpus if gpu.memory_mib), default=0)
        return node, capacity_of((node,)), Cluster(gpus_per_node((node,)), smallest)

    def _forget_all(self) -> None:
        for kept in self._kept():
            kept.clear()

    def _kept(self) -> tuple[dict[JobId, Any], ...]:
        return (self._records, self._views, self._frames, self._matters, self._answers, self._conditional)

    def _look_at_jobs(self, state: State) -> None:
        """Rebuild the views of jobs that had an event since the last snapshot."""
        active, records = state.active, self._records
        since = state.seq - self._seq
        if state is not self._state or not records or not 0 <= since <= len(state.recent):
            self._forget_all()  # another state, or more events than `recent` holds
            touched: Iterable[JobId | None] = list(active)
        else:
            touched = dict.fromkeys(state.recent[len(state.recent) - since :])
        self._state, self._seq = state, state.seq
        for job in touched:
            if job in active:
                self._renew(state.jobs[job])
            elif job in records:
                for kept in self._kept():
                    kept.pop(job, None)
        if self._ask_always:
            for record in records.values():
                self._ask_again(record)

    def _renew(self, record: JobRecord) -> None:
        job = record.id
        self._records[job] = record
        speed, remaining = self._book.speed(record, self._cluster.gpus_per_node), self._book.remaining(record)
        matter = (self._unsaved(record, remaining), *_matter(record))
        if self._matters.get(job) == matter:
            self._make_if_new(record, speed, remaining)
            return
        self._matters[job] = matter
        waits = record.paused or record.not_before_s or record.spec.dependencies or lost_a_machine(record)
        if waits or may_stay(record):
            self._conditional[job] = None
        else:
            self._conditional.pop(job, None)
        self._make(record, speed, remaining)

    def _ask_again(self, record: JobRecord) -> None:
        speed, remaining = self._book.speed(record, self._cluster.gpus_per_node), self._book.remaining(record)
        self._make_if_new(record, speed, remaining)

    def _make_if_new(self, record: JobRecord, speed: Speed, remaining: Remaining) -> None:
        before = self._answers[record.id]
        if before[0] is not speed or before[1] is not remaining:
            self._make(record, speed, remaining)

    def _make(self, record: JobRecord, speed: Speed, remaining: Remaining) -> None:
        spec, frame = self._frames.get(record.id, _NO_FRAME)
        if frame is None or spec is not record.spec or frame.resizable is not record.may_be_resized:
            frame = frame_of(record, self._cluster.types, self._cluster.gpus_per_node)
            self._frames[record.id] = (record.spec, frame)
        cost_s = restart_cost_s(record, remaining, self._restart_cost_s)
        memory_mib, unsaved = self._cluster.gpu_memory_mib, self._unsaved(record, remaining)
        view = view_of(record, speed, remaining, frame, cost_s, memory_mib, unsaved)
        if record.spec.gpus.share and self._book.alone(record.id):
            view = replace(view, gpu_milli=GPU_MILLI)
        self._views[record.id] = view
        self._answers[record.id] = (speed, remaining)

    def _unsaved(self, record: JobRecord, remaining: Remaining) -> Unsaved | None:
        cost_s = restart_cost_s(record, remaining, self._restart_cost_s)
        return charged(record, cost_s) if self._charge_unsaved else None

    def _held_back(self, state: State, now_s: float) -> dict[JobId, Reason]:
        held_back: dict[JobId, Reason] = {}
        look = HeldBack(state, now_s)
        for job in self._conditional:
            record = self._records[job]
            stay = stay_of(record, state.nodes)
            self._only_on(job, stay.nodes if stay else ())
            reason = None if record.holding else look.reason(record)
            if reason is not None:
                held_back[job] = reason
            elif record.spec.dependencies and not record.holding:
                self._wait_since(job, _could_start_since_s(record, state))
        return held_back

    def _hold_to_limits(self, held_back: dict[JobId, Reason], state: State, options: Options) -> None:
        """Hold back jobs beyond the limits of their users. The time that they waited for a limit does not count as
        waiting."""
        if not limits_running(options):
            return
        could = [record for job, record in self._records.items() if job not in held_back]
        over = over_running(could, options)
        held_back.update(over)
        since_s = last_starts_s(could, options)
        for record in could:
            if record.id not in over and not record.holding and record.spec.user in since_s:
                since = max(_could_start_since_s(record, state), since_s[record.spec.user])
                self._wait_since(record.id, since)

    def _only_on(self, job: JobId, nodes: tuple[str, ...]) -> None:
        if self._views[job].only_on != nodes:
            self._views[job] = replace(self._views[job], only_on=nodes)

    def _wait_since(self, job: JobId, since_s: float) -> None:
        if self._views[job].waiting_since_s != since_s:
            self._views[job] = replace(self._views[job], waiting_since_s=since_s)


def _cluster(parts: Sequence[Cluster]) -> Cluster:
    most: dict[str, int] = {}
    for part in parts:
        for gpu_type, count in part.gpus_per_node.items():
            most[gpu_type] = max(most.get(gpu_type, 0), count)
    smallest = min((part.gpu_memory_mib for part in parts if part.gpu_memory_mib), default=0)
    return Cluster(dict(sorted(most.items())), smallest)


_of_job = attrgetter(
    "spec",
    "state",
    "priority",
    "paused",
    "not_before_s",
    "migrations",
    "uses_library",
    "first_started_s",
    "queued_since_s",
    "waited_s",
    "ran_s",
    "gpu_s",
    "restart_cost_s",
    "gpu_memory_mib",
    "files_on",
    "has_saved",
    "copy",
)
_of_run = attrgetter("allocation", "planned_s", "started_s", "changed_s", "stop", "withdrawn")


def _matter(record: JobRecord) -> tuple[object, ...]:
    """The fields of a record that its view depends on. They stay equal if only an epoch ended."""
    return _of_job(record) if record.run is None else _of_job(record) + _of_run(record.run)


def frame_of(record: JobRecord, types: tuple[str, ...], gpus_per_node: Mapping[str, int]) -> Frame:
    """The frame of a job. One that cannot be resized has only its first size: it would otherwise keep all GPUs that
    happen to be free at its start until it ends."""
    spec, resizable = record.spec, record.may_be_resized
    whole = not spec.gpus.share and not spec.cpu_only
    sizes = spec.gpus.sizes() if resizable else (spec.gpus.first_size,)
    frame = Frame(
        team=team_of(spec),
        sizes=sizes if whole else (1,),
        requested=spec.gpus.requested if whole else 1,
        gpu_types=usable_types(record, types),
        whole=whole,
        resizable=resizable,
    )
    return on_one_node(frame, gpus_per_node) if spec.launcher is Launcher.SINGLE else frame


def on_one_node(frame: Frame, gpus_per_node: Mapping[str, int]) -> Frame:
    """One process cannot span nodes, so sizes beyond the largest node are dropped."""
    largest = max((gpus_per_node.get(gpu_type, 0) for gpu_type in frame.gpu_types), default=0)
    sizes = tuple(size for size in frame.sizes if size <= largest)
    if not sizes or len(sizes) == len(frame.sizes):
        return frame
    return replace(frame, sizes=sizes, requested=min(frame.requested, sizes[-1]))


def _waiting_since_s(record: JobRecord, ends_s: Iterable[float] = ()) -> float:
    """Since when a pending job could have run: a back-off and the wait for its dependencies do not count."""
    return max(record.queued_since_s, record.not_before_s, *ends_s)


def _could_start_since_s(record: JobRecord, state: State) -> float:
    needed = (state.jobs[other] for other in record.spec.dependencies if other in state.jobs)
    return _waiting_since_s(record, [other.ended_s or 0.0 for other in needed])


def usable_types(record: JobRecord, types: tuple[str, ...]) -> tuple[str, ...]:
    """Types in the cluster that the job accepts, preferred ones first."""
    request = record.spec.gpus
    accepted = [t for t in types if accepts_type(request, t)]
    preferred = [t for t in request.prefer if t in accepted]
    return tuple(preferred + [t for t in accepted if t not in preferred])


def view_of(
    record: JobRecord,
    speed: Speed,
    remaining: Remaining,
    frame: Frame,
    restart_cost_s: float,
    gpu_memory_mib: int = 0,
    unsaved: Unsaved | None = None,
) -> JobView:
    spec, run, state = record.spec, record.run, record.state
    allocation = run.allocation if run is not None and state in HOLDING else None
    gpus = allocation.gpus if allocation is not None else 0
    held_n = 0 if allocation is None else gpus if gpus and allocation.share is None else 1
    stopping = state is JobState.STOPPING
    rate_now, attained = 0.0, record.gpu_s
    if state is JobState.RUNNING and run is not None and allocation is not None and run.started_s is not None:
        rate_now = speed.rate(max(1, gpus), len(allocation.parts), allocation.gpu_type)
        since = max(run.changed_s, run.started_s)
        milli = allocation.share.milli if allocation.share else GPU_MILLI * gpus
        attained += max(0.0, remaining.as_of_s - since) * milli / GPU_MILLI
    return _make_view(
        id=record.id,
        spec=spec,
        state=state,
        submitted_s=record.submitted_s,
        speed=speed,
        priority=record.priority,
        team=frame.team,
        sizes=frame.sizes,
        requested=frame.requested,
        gpu_milli=GPU_MILLI if frame.whole else _share_milli(record, gpu_memory_mib),
        share_memory_mib=0 if frame.whole else _share_memory_mib(record),
        gpu_types=frame.gpu_types,
        allocation=allocation,
        held_n=held_n,
        stopping=stopping,
        pinned=held_n > 0 and not stopping and not record.may_be_stopped,
        remaining_1_s=remaining.at_speed_1_s,
        as_of_s=remaining.as_of_s,
        rate_now=rate_now,
        length_median_1_s=remaining.length_median_1_s,
        length_sigma=remaining.length_sigma,
        done_1_s=remaining.done_1_s,
        restart_cost_s=restart_cost_s,
        unsaved=unsaved,
        attained_gpu_s=attained,
        first_started_s=record.first_started_s,
        waiting_since_s=_waiting_since_s(record) if state not in HOLDING else None,
        waited_s=record.waited_s,
        ran_s=record.ran_s,
        changed_s=run.changed_s if run else 0.0,
        migrated_s=run.planned_s if run and record.migrations else 0.0,
        left_alone_until_s=run.withdrawn.until_s if run and run.withdrawn else 0.0,
        withdrawable=stopping and may_be_withdrawn(record),
        last_nodes=run.allocation.nodes if run else (),
        weight=spec.weight,
        deadline_s=spec.deadline_s,
    )


def _share_milli(record: JobRecord, gpu_memory_mib: int) -> int:
    """The part of one GPU that a job on a shared GPU takes, in thousandths; 0 for a job without GPUs."""
    if not record.spec.gpus.share:
        return 0
    return share_milli(_share_memory_mib(record), record.spec.gpus.utilisation_milli, gpu_memory_mib)


def _share_memory_mib(record: JobRecord) -> int:
    if not record.spec.gpus.share:
        return 0
    measured = record.gpu_memory_mib * (100 + MEMORY_MARGIN_PERCENT) // 100
    return measured or record.spec.gpus.memory_mib


def restart_cost_s(record: JobRecord, remaining: Remaining, default_s: float = DEFAULT_RESTART_COST_S) -> float:
    """The measured cost of its own restarts; before the first, the start time of its family; else the default."""
    return 0.0 if record.spec.scales_in_place else start_cost_s(record, remaining.start_s, default_s)


def start_cost_s(record: JobRecord, family_s: float | None, default_s: float = DEFAULT_RESTART_COST_S) -> float:
    measured = (record.restart_cost_s, family_s)
    return next((cost_s for cost_s in measured if cost_s is not None), default_s)
