"""The cheapest change that would let a waiting job start, verified: the same brain decides on the changed state.

Tried in this order, the first that works is it: other GPU types, fewer GPUs (as few fewer as possible), a higher
priority, more nodes like the largest there is. What a person would do is what is tried: other types mean to cancel
the job and submit it again, behind the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from swell.core.capacity import accepts_type, need_of_spec
from swell.core.events import Event, JobCancelled, JobResumed, JobSubmitted, JobUpdated, NodeObserved, PriorityChanged
from swell.core.ids import JobId
from swell.core.job import PRIORITIES, GpuRequest, JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Contact, GpuHealth, Node, NodeCondition, gpus_per_node
from swell.core.snapshot import Options, Speed
from swell.core.state import JobRecord, JobState, State
from swell.core.state import copy_of as same
from swell.plan.snapshotter import Snapshotter
from swell.ports import Placer, Policy, Remaining, SpeedBook
from swell.sim.engine import Setup, Simulation
from swell.sim.forecast import Expected, copy_of

MAX_SIZES = 6
MAX_NEW_NODES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """`events` are what the change means; with them `job` (a new id after another submission) starts."""

    advice: str
    job: JobId
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`change` is None if the job starts anyway, or nothing that was tried would start it. `left_out` says of how many
    changes there was no time to find out."""

    change: Relaxation | None = None
    left_out: int = 0


class Trial:
    """One moment, decided once as it is, then with changes: only what a change touches is looked at again.

    The state is not changed. For one thread; `policy` and `placer` cache, so they are of nobody else's."""

    def __init__(
        self, state: State, book: SpeedBook, policy: Policy, placer: Placer, options: Options, now_s: float
    ) -> None:
        self._state = copy_of(state)
        self._book = book
        self._now_s = now_s
        self._per_node = gpus_per_node(self._state.nodes.values())
        self._setup = Setup(nodes=(), policy=policy, placer=placer, options=options, until_s=now_s)
        world = Expected(book, self._state, now_s, None)
        self._snapshotter = Snapshotter(world)
        self._snapshotter.take(self._state, now_s, options)
        self._as_it_is = self._decided(same(self._state), book)
        self._in_vain: dict[tuple[Hashable, int], float] = {}  # the first job like this that a change did not start

    def cheapest(self, job: JobId, enough: Callable[[], bool] = lambda: False) -> Found:
        """The first change that works, of those tried until `enough` says that time is up."""
        record = self._state.jobs.get(job)
        if record is None or record.state is not JobState.QUEUED or self._as_it_is.jobs[job].holding:
            return Found()
        candidates = list(_candidates(self._state, record, self._now_s))
        like = self._like(record)
        for number, candidate in enumerate(candidates):
            if self._in_vain.get((like, number), math.inf) <= record.submitted_s:
                continue  # it did not start an equal job that was tried before
            if enough():
                return Found(left_out=len(candidates) - number)
            stops = self._with(candidate, record)
            if stops is not None:
                return Found(change=replace(candidate, advice=_with_stops(candidate.advice, stops)))
            self._in_vain[like, number] = record.submitted_s
        return Found()

    def _like(self, record: JobRecord) -> Hashable:
        """The same for jobs that only their name, what they run and when they came tell apart: those of an array."""
        spec = replace(record.spec, name="", command=(), env={}, files="", array_index=-1, array_parameters={})
        left = self._book.remaining(record)
        known = self._book.speed(record, self._per_node)
        return repr(spec), record.priority, record.paused, record.attempts, id(known), left.at_speed_1_s, left.known

    def _with(self, change: Relaxation, record: JobRecord) -> tuple[JobId, ...] | None:
        """The jobs that give way when the passes of this moment start the job; None if these passes do not start it."""
        changed = same(self._state)
        for event in change.events:
            apply(changed, event)
        before = {job: changed.jobs[job].attempts for job in changed.active if changed.jobs[job].holding}
        future = self._decided(changed, _AsIf(self._book, change.job, record))
        if not future.jobs[change.job].holding:
            return None
        return tuple(
            other
            for other, attempts in before.items()
            if other in future.active and (future.jobs[other].attempts > attempts or not future.jobs[other].holding)
        )

    def _decided(self, state: State, book: SpeedBook) -> State:
        """Run the passes of this moment on the state, which changes."""
        world = Expected(book, state, self._now_s, None)
        snapshotter = self._snapshotter.branch(state, world)
        simulation = Simulation(self._setup, world, world, state=state, now_s=self._now_s, snapshotter=snapshotter)
        return simulation.run()


class _AsIf:
    """A speed book that gives a job that is submitted again the speed and length of the earlier one."""

    def __init__(self, book: SpeedBook, again: JobId, record: JobRecord) -> None:
        self.follows_records = book.follows_records
        self._book, self._again, self._record = book, again, record

    def learn(self, event: Event) -> None:
        """Nothing is learned from a trial."""

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Speed:
        return self._book.speed(self._record if job.id == self._again else job, gpus_per_node)

    def remaining(self, job: JobRecord) -> Remaining:
        return self._book.remaining(self._record if job.id == self._again else job)

    def alone(self, job: JobId) -> bool:
        return self._book.alone(self._record.id if job == self._again else job)


def _candidates(state: State, record: JobRecord, now_s: float) -> Iterator[Relaxation]:
    if record.paused:
        event = JobResumed(job=record.id, at_s=now_s)
        yield Relaxation(advice=f"let it go on: swell resume {record.id}", job=record.id, events=(event,))
        return
    yield from _other_types(state, record, now_s)
    yield from _fewer_gpus(state, record, now_s)
    yield from _priorities(record, now_s)
    yield from _more_nodes(state, record, now_s)


def _other_types(state: State, record: JobRecord, now_s: float) -> Iterator[Relaxation]:
    request = record.spec.gpus
    if request.types or request.exclude:
        spec = replace(record.spec, gpus=replace(request, types=(), exclude=()))
        yield _again(state, record, spec, now_s, "allow every GPU type")


def _fewer_gpus(state: State, record: JobRecord, now_s: float) -> Iterator[Relaxation]:
    request = record.spec.gpus
    for n in _smaller(request):
        gpus = replace(request, min=n, max=max(n, request.max if request.min < request.max else n), start=n, allowed=())
        advice = f"ask for {n} GPU{'s' if n > 1 else ''} instead of {_asked(request)}"
        if request.min < request.max:
            advice = f"let it run with {n} GPU{'s' if n > 1 else ''} (gpus.min: {n} instead of {request.min})"
        if replace(request, min=1, max=1, start=0) == GpuRequest():
            yield _updated(record, GpuRequest(min=gpus.min, max=gpus.max), now_s, advice)
        else:
            yield _again(state, record, replace(record.spec, gpus=gpus), now_s, advice)


def _updated(record: JobRecord, gpus: GpuRequest, now_s: float, advice: str) -> Relaxation:
    """It keeps its place in the queue."""
    size = f"{gpus.min}" if gpus.min == gpus.max else f"{gpus.min}-{gpus.max}"
    event = JobUpdated(job=record.id, gpus=gpus, at_s=now_s)
    return Relaxation(advice=f"{advice}: swell update {record.id} gpus={size}", job=record.id, events=(event,))


def _asked(request: GpuRequest) -> int:
    return max(request.min, request.requested)


def _smaller(request: GpuRequest) -> list[int]:
    """Sizes to try, largest first: one less, then halves."""
    if request.share or request.max == 0:
        return []
    most = max(request.min, request.requested)
    sizes = {most - 1, *(most >> k for k in range(1, 12))}
    return sorted((n for n in sizes if 1 <= n < most), reverse=True)[:MAX_SIZES]


def _again(state: State, record: JobRecord, spec: JobSpec, now_s: float, advice: str) -> Relaxation:
    job = state.last_job + 1
    events = (JobCancelled(job=record.id, at_s=now_s), JobSubmitted(job=job, spec=spec, at_s=now_s))
    return Relaxation(advice=f"{advice}: cancel it and submit it again", job=job, events=events)


def _priorities(record: JobRecord, now_s: float) -> Iterator[Relaxation]:
    for name, priority in sorted(PRIORITIES.items(), key=lambda item: item[1]):
        if priority > record.priority:
            event = PriorityChanged(job=record.id, priority=priority, at_s=now_s)
            advice = f"raise its priority: swell priority {record.id} {name}"
            yield Relaxation(advice=advice, job=record.id, events=(event,))


def _more_nodes(state: State, record: JobRecord, now_s: float) -> Iterator[Relaxation]:
    model = _largest(state, record.spec)
    if model is None:
        return
    count = 1
    while count <= MAX_NEW_NODES:
        events = tuple(NodeObserved(node=_new(model, state, i), at_s=now_s) for i in range(count))
        nodes = "a node" if count == 1 else f"{count} nodes"
        advice = f"add {nodes} with {len(model.gpus)} GPUs like {model.name}: swell node add"
        yield Relaxation(advice=advice, job=record.id, events=events)
        count *= 2


def _largest(state: State, spec: JobSpec) -> Node | None:
    """The node with the most GPUs that this job may use; none for a job that names its nodes, which a new one is not
    among."""
    need = need_of_spec(spec, 1, "")
    fitting = [
        node
        for node in state.nodes.values()
        if not spec.nodes
        and need.accepts(node)
        and (spec.cpu_only or any(accepts_type(spec.gpus, gpu.type) for gpu in node.gpus))
    ]
    return max(fitting, key=lambda node: (len(node.gpus), node.cpus, node.name), default=None)


def _new(model: Node, state: State, index: int) -> Node:
    name = f"new{index + 1}"
    while name in state.nodes:
        name += "x"
    gpus = tuple(replace(gpu, health=GpuHealth.OK, others=False, others_memory_mib=0, why="") for gpu in model.gpus)
    return replace(model, name=name, gpus=gpus, condition=NodeCondition.READY, why="", contact=Contact.HERE)


def _with_stops(advice: str, stops: tuple[JobId, ...]) -> str:
    if not stops:
        return f"{advice}; it starts at once"
    jobs = ", ".join(map(str, stops))
    return f"{advice}; it starts as soon as job{'s' if len(stops) > 1 else ''} {jobs} made room at a checkpoint"
