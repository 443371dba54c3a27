"""From what is true (state, speed book) to what the brain sees (a snapshot). Pure; views are reused while unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swell.core.decision import Reason, ReasonCode
from swell.core.events import ExitReason
from swell.core.ids import JobId
from swell.core.job import Launcher
from swell.core.resources import GPU_MILLI, Allocation, Node, NodeCondition, gpus_per_node
from swell.core.snapshot import JobView, Options, Snapshot, Speed, capacity_of
from swell.core.state import JobRecord, JobState, State
from swell.placement.interference import WatchedBook
from swell.placement.sharing import MEMORY_MARGIN_PERCENT
from swell.ports import Remaining, SpeedBook

DEFAULT_RESTART_COST_S = 30.0


@dataclass(frozen=True, slots=True)
class _Cached:
    record: JobRecord
    speed: Speed
    remaining: Remaining
    view: JobView


class Picture:
    """Takes snapshots. Holds nothing but a cache: a fresh one gives the same answers."""

    def __init__(self, book: SpeedBook, restart_cost_s: float = DEFAULT_RESTART_COST_S) -> None:
        self._book = book
        self._restart_cost_s = restart_cost_s
        self._views: dict[JobId, _Cached] = {}
        self._known: tuple[Node, ...] | None = None
        self._nodes: tuple[Node, ...] = ()
        self._capacity = capacity_of(())
        self._types: tuple[str, ...] = ()
        self._gpus_per_node: dict[str, int] = {}
        self._gpu_memory_mib = 0

    def take(self, state: State, now_s: float, options: Options) -> tuple[Snapshot, dict[JobId, Reason]]:
        """The snapshot of all jobs that may run now, and why each of the others may not."""
        self._look_at_nodes(state)
        views: list[JobView] = []
        held_back: dict[JobId, Reason] = {}
        for job_id in state.active:
            record = state.jobs[job_id]
            reason = None if record.holding else not_yet(record, state, now_s)
            if reason is not None:
                held_back[job_id] = reason
            else:
                view = self._view(record)
                views.append(_since_it_could_run(view, state) if record.spec.depends_on else view)
        self._forget_ended(state)
        snapshot = Snapshot(now_s=now_s, jobs=tuple(views), nodes=self._nodes, capacity=self._capacity, options=options)
        return snapshot, held_back

    def _look_at_nodes(self, state: State) -> None:
        known = tuple(state.nodes.values())
        if known == self._known:
            return
        self._known = known
        nodes = tuple(node for _, node in sorted(state.nodes.items()) if node.condition is not NodeCondition.LOST)
        if nodes != self._nodes:
            self._nodes = nodes
            self._capacity = capacity_of(nodes)
            self._views.clear()
            self._gpus_per_node = gpus_per_node(nodes)
            self._types = tuple(sorted(self._gpus_per_node))
            self._gpu_memory_mib = min((g.memory_mib for n in nodes for g in n.gpus), default=0)

    def _forget_ended(self, state: State) -> None:
        if len(self._views) > 2 * len(state.active) + 100:
            self._views = {job: cached for job, cached in self._views.items() if job in state.active}

    def _view(self, record: JobRecord) -> JobView:
        speed = self._book.speed(record, self._gpus_per_node)
        remaining = self._book.remaining(record)
        cached = self._views.get(record.id)
        if cached and cached.record is record and cached.speed is speed and cached.remaining is remaining:
            return cached.view
        view = view_of(record, speed, remaining, self._types, self._restart_cost_s, self._gpu_memory_mib)
        if record.spec.launcher is Launcher.SINGLE:
            view = on_one_node(view, self._gpus_per_node)
        if record.spec.gpus.share and self._alone(record.id):
            view = replace(view, gpu_milli=GPU_MILLI)
        self._views[record.id] = _Cached(record, speed, remaining, view)
        return view

    def _alone(self, job: JobId) -> bool:
        return isinstance(self._book, WatchedBook) and self._book.alone(job)


def on_one_node(view: JobView, gpus_per_node: Mapping[str, int]) -> JobView:
    """One process cannot span nodes: sizes beyond the largest node are of no use to it, so nobody grants them."""
    largest = max((gpus_per_node.get(gpu_type, 0) for gpu_type in view.gpu_types), default=0)
    sizes = tuple(size for size in view.sizes if size <= largest)
    if not sizes or len(sizes) == len(view.sizes):
        return view
    return replace(view, sizes=sizes, requested=min(view.requested, sizes[-1]))


def _since_it_could_run(view: JobView, state: State) -> JobView:
    """Nobody passed it over while it waited for other jobs to complete."""
    if view.waiting_since_s is None:
        return view
    ends_s = [state.jobs[job].ended_s or 0.0 for job in view.spec.depends_on if job in state.jobs]
    return replace(view, waiting_since_s=max([view.waiting_since_s, *ends_s]))


def not_yet(record: JobRecord, state: State, now_s: float) -> Reason | None:
    """Why a queued job may not be considered now, whatever is free."""
    if record.paused:
        return Reason(code=ReasonCode.PAUSED)
    if record.not_before_s > now_s:
        return _backoff(record)
    waiting_for = [job for job in record.spec.depends_on if _not_completed(state, job)]
    if waiting_for:
        return Reason(code=ReasonCode.DEPENDS, detail={"jobs": ", ".join(map(str, waiting_for))})
    return None


def _backoff(record: JobRecord) -> Reason:
    full = record.run is not None and record.run.exit_reason is ExitReason.NODE_FULL
    why = {"why": record.message} if full else {}
    return Reason(code=ReasonCode.BACKOFF, detail={"until_s": record.not_before_s, **why})


def _not_completed(state: State, job: JobId) -> bool:
    record = state.jobs.get(job)
    return record is not None and record.state is not JobState.COMPLETED


def usable_types(record: JobRecord, types: tuple[str, ...]) -> tuple[str, ...]:
    """Types in the cluster that the job accepts, preferred ones first."""
    request = record.spec.gpus
    accepted = [t for t in types if (not request.types or t in request.types) and t not in request.exclude]
    preferred = [t for t in request.prefer if t in accepted]
    return tuple(preferred + [t for t in accepted if t not in preferred])


def held_units(allocation: Allocation | None) -> int:
    if allocation is None:
        return 0
    return allocation.gpus if allocation.gpus and allocation.share is None else 1


def view_of(
    record: JobRecord,
    speed: Speed,
    remaining: Remaining,
    types: tuple[str, ...],
    restart_cost_s: float,
    gpu_memory_mib: int = 0,
) -> JobView:
    spec, run, allocation = record.spec, record.run, record.allocation
    stopping = record.state is JobState.STOPPING
    running = record.state is JobState.RUNNING and run is not None and run.started_s is not None
    held_n = held_units(allocation)
    rate_now = _rate_now(speed, allocation) if running else 0.0
    whole = not spec.gpus.share and not spec.cpu_only
    attained = record.gpu_s
    as_of_s = remaining.as_of_s
    if running and run is not None and allocation is not None:
        since = max(run.changed_s, run.started_s or 0.0)
        attained += max(0.0, as_of_s - since) * allocation.gpu_milli / GPU_MILLI
    return JobView(
        id=record.id,
        spec=spec,
        state=record.state,
        submitted_s=record.submitted_s,
        speed=speed,
        priority=record.priority,
        team=spec.team or spec.user,
        sizes=spec.gpus.sizes() if whole else (1,),
        requested=spec.gpus.requested if whole else 1,
        gpu_milli=GPU_MILLI if whole else _share_milli(record, gpu_memory_mib),
        share_memory_mib=_share_memory_mib(record),
        gpu_types=usable_types(record, types),
        allocation=allocation,
        held_n=held_n,
        stopping=stopping,
        pinned=held_n > 0 and not stopping and not record.may_be_stopped,
        remaining_1_s=remaining.at_speed_1_s,
        as_of_s=as_of_s,
        rate_now=rate_now,
        remaining_known=remaining.known,
        remaining_sigma=remaining.sigma,
        restart_cost_s=_restart_cost_s(record, restart_cost_s),
        attained_gpu_s=attained,
        first_started_s=record.first_started_s,
        waiting_since_s=max(record.queued_since_s, record.not_before_s) if not record.holding else None,
        waited_s=record.waited_s,
        ran_s=record.ran_s,
        changed_s=run.changed_s if run else 0.0,
        migrated_s=run.planned_s if run and record.migrations else 0.0,
        last_nodes=run.allocation.nodes if run else (),
        weight=spec.weight,
        deadline_s=spec.deadline_s,
    )


def _rate_now(speed: Speed, allocation: Allocation | None) -> float:
    if allocation is None:
        return 0.0
    return speed.rate(max(1, allocation.gpus), len(allocation.parts), allocation.gpu_type)


def _share_milli(record: JobRecord, gpu_memory_mib: int) -> int:
    """What a shared job costs of one GPU: its utilisation or its part of the memory, whichever is more."""
    if not record.spec.gpus.share:
        return 0
    memory_mib = _share_memory_mib(record)
    by_memory = -(-GPU_MILLI * memory_mib // gpu_memory_mib) if gpu_memory_mib else 0
    return min(GPU_MILLI, max(1, record.spec.gpus.utilisation_milli, by_memory))


def _share_memory_mib(record: JobRecord) -> int:
    if not record.spec.gpus.share:
        return 0
    measured = record.gpu_memory_mib * (100 + MEMORY_MARGIN_PERCENT) // 100
    return measured or record.spec.gpus.memory_mib


def _restart_cost_s(record: JobRecord, default_s: float) -> float:
    if record.spec.scales_in_place:
        return 0.0
    return record.restart_cost_s if record.restart_cost_s is not None else default_s
