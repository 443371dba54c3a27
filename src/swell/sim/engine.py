"""One discrete-event simulator on the daemon's own brain: the same `Snapshotter`, `cycle` and `apply`, a virtual clock.

Things that will happen wait on an agenda, by time. What has become stale when its time comes (the report of a run that
was stopped before) is dropped, as it would never have been sent. After the events of one moment comes a pass, at once
or at the next multiple of the interval; passes repeat in the same moment as long as they free something.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from swell.core.errors import Infeasible
from swell.core.events import (
    EpochEnded,
    Event,
    ExitReason,
    JobSubmitted,
    NodeConditionChanged,
    NodeObserved,
    NodeRemoved,
    PolicySet,
    RunEnded,
    RunPlanned,
    RunResized,
    RunStopRequested,
    job_of,
    run_of,
)
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Node, NodeCondition
from swell.core.snapshot import Options
from swell.core.state import State
from swell.core.transitions import is_stale
from swell.plan.admit import check_feasible
from swell.plan.cycle import cycle
from swell.plan.deadlines import Due, Patience, due
from swell.plan.one_pass import outcome, question
from swell.plan.snapshotter import DEFAULT_RESTART_COST_S, Snapshotter
from swell.ports import Placer, Policy, SpeedBook
from swell.sim.workload import Arrival, Workload
from swell.sim.world import World

MAX_PASSES = 8
"""Passes in one moment. A policy that needs more never settles; the next moment continues from there."""

MAX_IDLE = 10_000
"""Passes in a row in which nothing happens and nothing is expected: jobs that wait after that would never start."""

_NO_HURRY = Patience(gang_timeout_s=float("inf"))

NEWS = frozenset({JobSubmitted, RunEnded, NodeObserved, NodeConditionChanged, NodeRemoved, PolicySet})
"""Events that cause a pass: something came, was freed or was lost. Reports only improve the data of the next pass."""

Observer = Callable[[State, Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is simulated, apart from the world."""

    nodes: tuple[Node, ...]
    policy: Policy
    placer: Placer
    options: Options = field(default_factory=Options)
    interval_s: float = 0.0  # passes only at multiples of this; 0: as soon as something happened
    quiet_rounds: bool = True  # a pass also at those before which nothing happened
    restart_cost_s: float = DEFAULT_RESTART_COST_S  # the prior before one was measured
    charge_unsaved: bool = True  # decisions are charged with the work that a stop waits for or loses
    seed: int = 0
    until_s: float = float("inf")
    faults: tuple[Event, ...] = ()  # nodes that are lost and come back


class Simulation:
    """Runs a workload to its end. `state` is as real as the daemon's."""

    def __init__(
        self,
        setup: Setup,
        world: World,
        book: SpeedBook,
        observers: Sequence[Observer] = (),
        *,
        state: State | None = None,
        now_s: float = 0.0,
        snapshotter: Snapshotter | None = None,
    ) -> None:
        """Begins with an empty cluster, or goes on from `state` at `now_s` (which it changes: hand over a copy), with a
        snapshotter that knows this state already if there is one."""
        self.setup = setup
        self.state = state if state is not None else State()
        self.now_s = now_s
        self.passes = 0
        self.refused = 0  # could never run here
        self.events = 0
        self._world = world
        self._book = book
        self._observers = observers
        self._snapshotter = snapshotter or Snapshotter(book, setup.restart_cost_s, charge_unsaved=setup.charge_unsaved)
        self._agenda: list[tuple[float, int, Event | Arrival]] = []
        self._coming: Iterator[tuple[float, int, Arrival]] = iter(())  # arrivals after the one on the agenda
        self._order = 0
        self._feasible: dict[Hashable, bool] = {}
        self._void: dict[RunId, int] = {}
        self._due_s: float | None = None  # of the next pass
        self._news = False  # something happened that a decision may depend on
        self._watch = state is not None  # some job may have a time limit or wait for another
        self._wake_s: float | None = None
        self._idle = 0  # passes in a row after which nothing was left to happen
        self.on_pass: Callable[[float], object] = lambda _: None  # called with the time of each pass
        if state is None:
            self._begin()
        self.expect(setup.faults)

    def _begin(self) -> None:
        setup, at_s = self.setup, self.now_s
        for node in setup.nodes:
            self._happen(NodeObserved(node=node, at_s=at_s))
        options = setup.options.policy
        self._happen(PolicySet(name=setup.policy.name, placer=setup.placer.name, at_s=at_s, options=options))

    def run(self, workload: Workload | None = None) -> State:
        """Submit everything at its time and go on until nothing is left to happen."""
        if workload is not None:
            numbered = enumerate(workload.arrivals, start=self._order + 1)
            self._coming = iter(sorted((arrival.at_s, order, arrival) for order, arrival in numbered))
            self._order += len(workload.arrivals)
            self._await_next()
        if self.state.active:
            self._call_for_pass()
        while (moment := self._next_s()) is not None and moment <= self.setup.until_s:
            self.now_s = moment
            self._moment()
        return self.state

    def _await_next(self) -> None:
        """One arrival at a time is on the agenda, so that it stays short."""
        coming = next(self._coming, None)
        if coming is not None:
            heapq.heappush(self._agenda, coming)

    def _next_s(self) -> float | None:
        next_s = self._agenda[0][0] if self._agenda else None
        if self._due_s is not None and (next_s is None or self._due_s < next_s):
            next_s = self._due_s
        if self._wake_s is not None and (next_s is None or self._wake_s < next_s) and self.state.active:
            next_s = self._wake_s
        return next_s

    def _moment(self) -> None:
        if self._take_events():
            self._call_for_pass()
        if self._wake_s is not None and self._wake_s <= self.now_s:
            self._wake_s = None
            self._call_for_pass()
        if self._due_s is not None and self._due_s <= self.now_s:
            self._due_s = None
            self._decide()

    def _take_events(self) -> bool:
        """Everything that happens at this moment. True if anything did that may change a decision."""
        agenda = self._agenda
        self._news = False
        while agenda and agenda[0][0] <= self.now_s:
            _, order, what = heapq.heappop(agenda)
            if isinstance(what, Arrival):
                self._await_next()
                self._arrive(what)
            elif not is_stale(self.state, what) and not (self._void and self._is_void(what, order)):
                self._happen(what)
        return self._news

    def _is_void(self, event: Event, order: int) -> bool:
        """Whether the event was scheduled before its run was resized in place: it has been scheduled anew since
        then."""
        run = run_of(event)
        return run is not None and order <= self._void.get(run, 0)

    def _call_for_pass(self) -> None:
        interval = self.setup.interval_s
        if not interval:
            self._due_s = self.now_s
        elif self._due_s is None:
            rounds = -(-self.now_s // interval)
            self._due_s = rounds * interval

    def _decide(self) -> None:
        before = self.events
        for _ in range(MAX_PASSES):
            freed = self._pass()
            if not (self._take_events() and freed):
                break
        self._idle = 0 if self._agenda or self.events > before else self._idle + 1
        if self.setup.interval_s and self.setup.quiet_rounds and self.state.active and self._idle < MAX_IDLE:
            self._due_s = self.now_s + self.setup.interval_s

    def _pass(self) -> bool:
        """One decision, carried out. True if something is being stopped for it."""
        setup, state = self.setup, self.state
        was_due = self._do_what_is_due()
        asked = question(self._snapshotter, state, self.now_s, setup.options)
        self.passes += 1
        self.on_pass(self.now_s)
        rng = random.Random(asked.seed + setup.seed)  # noqa: S311 - a simulation
        plan = cycle(asked.snapshot, setup.policy, setup.placer, asked.memory, rng)
        done = outcome(asked, plan, state, self.now_s)
        for event in done.events:
            self._happen(event)
        wakes = (was_due.next_s, done.wake_s)
        self._wake_s = min((w for w in wakes if w is not None and w > self.now_s), default=None)
        return bool(plan.stops) or any(isinstance(event, RunStopRequested) for event in was_due.events)

    def _do_what_is_due(self) -> Due:
        """Time limits and jobs that wait for what cannot be, as in the daemon."""
        found = due(self.state, self.now_s, _NO_HURRY) if self._watch else Due()
        for event in found.events:
            self._happen(event)
        return found

    def _arrive(self, arrival: Arrival) -> None:
        if not self._can_ever_run(arrival.spec):
            self.refused += 1
            return
        job = self.state.last_job + 1
        event = JobSubmitted(job=job, spec=arrival.spec, at_s=self.now_s)
        apply(self.state, event)
        self._watch = self._watch or bool(arrival.spec.time_limit_s or arrival.spec.dependencies)
        self._world.submitted(self.state.jobs[job], arrival)
        self._told(event)

    def _can_ever_run(self, spec: JobSpec) -> bool:
        where = (tuple(sorted(spec.node_labels.items())), spec.nodes, spec.image)
        key = (spec.gpus, spec.launcher, spec.roles, spec.cpus, spec.memory_mib, where)
        found = self._feasible.get(key)
        if found is None:
            try:
                check_feasible(spec, self.setup.nodes)
                found = True
            except Infeasible:
                found = False
            self._feasible[key] = found
        return found

    def _happen(self, event: Event) -> None:
        apply(self.state, event)
        self._told(event)
        if type(event) is EpochEnded:  # by far the most
            self.expect(self._world.after(event, self.state.jobs[event.run.job]))
            return
        job_id = job_of(event)
        if job_id is not None and (job := self.state.jobs.get(job_id)) is not None:
            if isinstance(event, RunPlanned):
                self.expect(self._world.launched(job, self.now_s))
            elif isinstance(event, RunStopRequested):
                self.expect(self._world.stopping(job, self.now_s))
            elif isinstance(event, RunResized):
                self._void[event.run] = self._order
                self.expect(self._world.resized(job, self.now_s))
            elif not job.ended:
                self.expect(self._world.after(event, job))
        elif isinstance(event, NodeConditionChanged) and event.condition is NodeCondition.LOST:
            self._lose(event.node)

    def _told(self, event: Event) -> None:
        self.events += 1
        if type(event) in NEWS:
            self._news = True
        self._book.learn(event)
        for observer in self._observers:
            observer(self.state, event)

    def _lose(self, node: str) -> None:
        """Runs on a lost node are lost with it, as the daemon would find."""
        for job_id in list(self.state.active):
            job = self.state.jobs[job_id]
            if job.allocation is not None and job.run is not None and node in job.allocation.nodes:
                self._world.lost(job, self.now_s)
                self._happen(RunEnded(run=job.run.id, reason=ExitReason.NODE_LOST, at_s=self.now_s))

    def expect(self, events: Iterable[Event]) -> None:
        """Schedule these events; each happens at its time unless it is stale by then."""
        for event in events:
            self._order += 1
            heapq.heappush(self._agenda, (event.at_s, self._order, event))
