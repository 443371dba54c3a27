"""When will each job start and end? The live state run forward under the current policy, several times.

Once with what the models expect; once with every job shorter, once with every job longer than expected by a standard
deviation; and some times with each job off by chance. The interval of a job spans what came out. Arrivals to come are
not known, so a forecast is what would happen if nobody submitted anything more.

Work is bounded. With many jobs decisions are made in rounds; with more than FAR_JOBS the future is not followed to its
end, but as far as MOST_LOOKS go, and the answer says how far that was (`Forecast.until_s`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from swell.core.events import (
    Event,
    ExitReason,
    JobSubmitted,
    NodeObserved,
    NodeRemoved,
    RunEnded,
    RunPlanned,
    RunStarted,
)
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Node, gpus_per_node
from swell.core.snapshot import Options, Speed
from swell.core.state import HOLDING, JobRecord, JobState, Run, State
from swell.plan.snapshotter import start_cost_s
from swell.ports import Placer, Policy, Remaining, SpeedBook
from swell.sim.engine import Observer, Setup, Simulation
from swell.sim.workload import Arrival
from swell.speed.lengths import Length
from swell.speed.remaining import LEAST_LEFT

LOOKS = 60_000
"""Times a sample looks at a job, about: how long rounds are is chosen so."""
FAR_JOBS = 1000
"""With more jobs than this a sample ends before all of them have."""
MOST_LOOKS = 600_000
"""Times a sample of more than FAR_JOBS may look at a job: a second or two of work."""
ROUND = 0.05
"""Rounds of such a sample, as a part of what a job takes on average."""
MIN_SIGMA = 0.25
"""However sure a model is of a job's length: what others will do to it is not known better than this."""
HORIZON_S = 10 * 365 * 86400.0
SOON_S = 600.0
UNKNOWN = 50.0
"""An interval that goes beyond `SOON_S`, and to this many times as far as it begins, says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Absolute times. A running job has started: its three starts are the same."""

    start_low_s: float
    start_mid_s: float
    start_high_s: float
    end_low_s: float
    end_mid_s: float
    end_high_s: float


def says_nothing(low_s: float, high_s: float) -> bool:
    """Of an interval, from now: people are told that it is unknown, not these numbers."""
    return high_s > SOON_S and high_s > UNKNOWN * max(low_s, 1.0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """One job in one sample."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """One sample. Followed until `until_s` (None: to the end): jobs that are missing start later, if ever."""

    outlooks: Mapping[JobId, Outlook]
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """All samples together; `until_s` as in `Ahead`."""

    intervals: Mapping[JobId, Interval]
    until_s: float | None = None


def forecast(
    state: State,
    book: SpeedBook,
    policy: Policy,
    placer: Placer,
    options: Options,
    now_s: float,
    samples: int = 5,
    seed: int = 0,
) -> Forecast:
    """An interval for every job that has not ended, is not paused and starts within the future
    that is followed. `state` is not changed."""
    followed = [
        run_forward(state, book, policy, placer, options, now_s, _Errors(number, seed)) for number in range(samples)
    ]
    outlooks = [one.outlooks for one in followed]
    expected = outlooks[0]
    found: dict[JobId, Interval] = {}
    for job, mid in expected.items():
        sampled = [outlook[job] for outlook in outlooks if job in outlook]
        starts, ends = [one.start_s for one in sampled], [one.end_s for one in sampled]
        found[job] = Interval(
            start_low_s=min(starts),
            start_mid_s=mid.start_s,
            start_high_s=max(starts),
            end_low_s=min(ends),
            end_mid_s=mid.end_s,
            end_high_s=max(ends),
        )
    return Forecast(intervals=found, until_s=followed[0].until_s)


@dataclass(frozen=True, slots=True)
class _Errors:
    """How far jobs are from what is expected, in one sample: not at all, all shorter, all longer, each by chance."""

    number: int
    seed: int

    def factor(self, job: JobId, sigma: float) -> float:
        return math.exp(self.deviation(job) * min(max(sigma, MIN_SIGMA), 1.5))

    def deviation(self, job: JobId) -> float:
        """In standard deviations."""
        if self.number == 0:
            return 0.0
        if self.number in (1, 2):
            return -1.0 if self.number == 1 else 1.0
        z = random.Random(f"{self.seed}/{self.number}/{job}").gauss(0.0, 1.0)  # noqa: S311 - a forecast
        return max(-3.0, min(3.0, z))


def run_forward(
    state: State,
    book: SpeedBook,
    policy: Policy,
    placer: Placer,
    options: Options,
    now_s: float,
    errors: _Errors | None = None,
    observers: Sequence[Observer] = (),
) -> Ahead:
    """One sample: start and end of every job that starts within the future that is followed. `observers` see it."""
    future = copy_of(state)
    world = Expected(book, future, now_s, errors or _Errors(0, 0))
    setup = Setup(
        nodes=(),
        policy=policy,
        placer=placer,
        options=options,
        interval_s=_interval_s(future, world),
        quiet_rounds=False,
        charge_unsaved=False,  # when its runs will save is unknown
        until_s=now_s + HORIZON_S,
    )
    watch = _Watch()
    simulation = Simulation(setup, world, world, (watch, *observers), state=future, now_s=now_s)
    simulation.expect(world.going_on(future, now_s))
    looks = _Looks(future, MOST_LOOKS if len(future.active) > FAR_JOBS else None)
    simulation.on_pass = looks.at
    try:
        simulation.run()
    except _Enough:
        return Ahead(outlooks=watch.outlooks(state, world.ends(future)), until_s=simulation.now_s)
    return Ahead(outlooks=watch.outlooks(state, {}))


class _Enough(Exception):
    """A sample has looked at jobs as often as it may."""


@dataclass(slots=True)
class _Looks:
    """Counts how often a sample has looked at a job."""

    state: State
    most: int | None
    used: int = 0

    def at(self, now_s: float) -> None:
        self.used += len(self.state.active)
        if self.most is not None and self.used > self.most:
            raise _Enough


def copy_of(state: State) -> State:
    """A state of its own, with the jobs that have not ended and those they wait for. Records are frozen: shared."""
    jobs = state.jobs
    wanted = {job: jobs[job] for job in state.active}
    needed = {job for record in wanted.values() if (on := record.spec.dependencies) for job in on if job in jobs}
    if needed - wanted.keys():
        wanted = {job: jobs[job] for job in sorted(needed | wanted.keys())}
    return replace(
        state,
        jobs=wanted,
        active=dict(state.active),
        ended={job: None for job in state.ended if job in wanted},
        keys={},
        nodes=dict(state.nodes),
        counts={},
        month_gpu_s=dict(state.month_gpu_s),
        recent=[],
    )


def _interval_s(state: State, world: Expected) -> float:
    """0 (decide at each event) for few jobs; else rounds so long that the work is bounded."""
    jobs = len(state.active)
    rounds = LOOKS // max(1, jobs)
    if 4 * jobs <= rounds:
        return 0.0
    total_1_s = world.total_1_s(state)
    if jobs > FAR_JOBS:
        return max(1.0, ROUND * total_1_s / jobs)
    gpus = max(1, sum(len(node.gpus) for node in state.nodes.values()))
    longest_s = max((world.alone_s(state.jobs[job]) for job in state.active), default=0.0)
    return max(1.0, longest_s / rounds, total_1_s / gpus / rounds)


@dataclass(slots=True)
class _Task:
    """A job as this sample has it: `expected_s` is what the models say is left, `factor` how much more it is."""

    speed: Speed
    expected_s: float
    factor: float
    as_of_s: float
    rate: float = 0.0
    known: bool = False
    sigma: float = 0.5
    length: Length | None = None  # where nothing better is known of how long it is
    done_s: float = 0.0  # of that
    start_s: float | None = None  # of a run, as its family took

    def settle(self, now_s: float) -> None:
        done = self.rate * max(0.0, now_s - self.as_of_s)
        self.done_s += done
        self.expected_s = max(0.0, self.expected_s - done / self.factor)
        self.as_of_s, self.rate = now_s, 0.0

    def draw(self, length: Length, job: JobRecord, deviation: float) -> None:
        """How long it is, given that it has not ended. One that reports epochs and is in its first of thirty is thirty
        times what it has done, at least. Soon it will have shown that: policies see it now."""
        shown_s = self.done_s * job.epochs_total if job.uses_library and not job.epochs_done else 0.0
        if shown_s > self.done_s:
            self.expected_s = length.left_s(shown_s) + shown_s - self.done_s
        else:
            self.length, shown_s = length, self.done_s
        left_s = length.left_s(shown_s, NormalDist().cdf(deviation)) + shown_s - self.done_s
        self.factor = left_s / max(self.expected_s, 1e-3)


class Expected:
    """World and speed book of a forecast: the models' expectation is what policies see, with errors is what happens.

    A job that waits is looked at when somebody asks for it: nothing happens to it before. Without `errors` only this
    moment is decided, and policies see what the daemon's own sees now."""

    follows_records = True

    def __init__(self, book: SpeedBook, state: State, now_s: float, errors: _Errors | None) -> None:
        self._book = book
        self._errors = errors
        self._now_s = now_s
        self._per_node = gpus_per_node(state.nodes.values())
        self._tasks: dict[JobId, _Task] = {}
        self._remaining: dict[JobId, tuple[JobRecord, Remaining]] = {}
        for job_id in state.active:
            if (job := state.jobs[job_id]).state in HOLDING:
                self._look_at(job, now_s)

    def _task(self, job: JobRecord) -> _Task:
        return self._tasks.get(job.id) or self._look_at(job, self._now_s)

    def _look_at(self, job: JobRecord, now_s: float) -> _Task:
        speed, left = self._book.speed(job, self._per_node), self._book.remaining(job)
        factor = self._errors.factor(job.id, left.sigma) if self._errors is not None else 1.0
        task = _Task(speed, left.at_speed_1_s, factor, left.as_of_s, known=left.known, sigma=left.sigma)
        if job.state is JobState.RUNNING and job.run is not None:
            task.rate = self._rate(task, job.run)
        task.done_s, task.start_s = left.done_1_s, left.start_s
        done = task.rate * max(0.0, now_s - left.as_of_s)
        task.settle(max(now_s, left.as_of_s))
        if not left.known:  # a guess that is used up was a bad one: the longer it has been wrong, the more is left
            task.expected_s = max(task.expected_s, LEAST_LEFT * done)
        if self._errors is not None:
            self._foresee(task, job, left, done, self._errors)
        self._tasks[job.id] = task
        return task

    def _foresee(self, task: _Task, job: JobRecord, left: Remaining, done: float, errors: _Errors) -> None:
        """What policies will soon see of a job that outran its estimate, and how long the job is in this sample."""
        guessed = left.length_median_1_s > 0.0 or not left.known
        task.expected_s = max(task.expected_s, LEAST_LEFT * done if guessed else done - left.at_speed_1_s)
        if left.length_median_1_s:
            task.draw(Length(left.length_median_1_s, left.length_sigma), job, errors.deviation(job.id))

    def going_on(self, state: State, now_s: float) -> list[Event]:
        """What comes of the runs there are."""
        events: list[Event] = []
        for job_id in state.active:
            job = state.jobs[job_id]
            if job.run is None or not job.holding:
                continue
            if job.state is JobState.STOPPING:
                events.extend(self.stopping(job, now_s))
            elif job.state is JobState.STARTING:
                events.extend(self.launched(job, now_s))
            else:
                events.append(self._end(job, job.run, now_s))
        return events

    def alone_s(self, job: JobRecord) -> float:
        return self._task(job).expected_s

    def total_1_s(self, state: State) -> float:
        return sum(self._task(state.jobs[job]).expected_s for job in state.active)

    def ends(self, state: State) -> dict[JobId, float]:
        """When the jobs that hold something will be done if nothing changes any more."""
        holding = [state.jobs[job] for job in state.active if state.jobs[job].holding]
        return {job.id: _done_s(self._task(job)) for job in holding}

    def submitted(self, job: JobRecord, arrival: Arrival) -> None:
        self._look_at(job, job.submitted_s)

    def launched(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        assert job.run is not None  # it was just planned
        cost_s = start_cost_s(job, self._task(job).start_s)
        return (RunStarted(run=job.run.id, at_s=now_s), self._end(job, job.run, now_s + cost_s))

    def after(self, event: Event, job: JobRecord) -> Sequence[Event]:
        return ()

    def stopping(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        assert job.run is not None  # it is stopping
        self._task(job).settle(now_s)
        return (RunEnded(run=job.run.id, reason=ExitReason.STOPPED, at_s=now_s),)

    def lost(self, job: JobRecord, now_s: float) -> None:
        self._task(job).settle(now_s)

    def resized(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        assert job.run is not None  # it was just resized
        self._task(job).settle(now_s)
        return (self._end(job, job.run, now_s),)

    def fair_s(self, job: JobRecord, share: Mapping[str, float]) -> float:
        return 0.0

    def _end(self, job: JobRecord, run: Run, from_s: float) -> RunEnded:
        """It makes progress from then on; that is when it will be done."""
        task = self._task(job)
        task.as_of_s, task.rate = from_s, self._rate(task, run)
        return RunEnded(run=run.id, reason=ExitReason.FINISHED, at_s=_done_s(task))

    def _rate(self, task: _Task, run: Run) -> float:
        allocation = run.allocation
        return max(1e-6, task.speed.rate(max(1, allocation.gpus), len(allocation.parts), allocation.gpu_type))

    def learn(self, event: Event) -> None:
        """A forecast learns nothing."""

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Speed:
        return self._task(job).speed

    def remaining(self, job: JobRecord) -> Remaining:
        cached = self._remaining.get(job.id)
        if cached is not None and cached[0] is job:
            return cached[1]
        task = self._task(job)
        left = Remaining(
            at_speed_1_s=task.expected_s,
            as_of_s=task.as_of_s,
            sigma=task.sigma,
            known=task.known,
            length_median_1_s=task.length.median_s if task.length else 0.0,
            length_sigma=task.length.sigma if task.length else 0.0,
            done_1_s=task.done_s,
            start_s=task.start_s,
        )
        self._remaining[job.id] = (job, left)
        return left

    def alone(self, job: JobId) -> bool:
        return self._book.alone(job)


def _done_s(task: _Task) -> float:
    """When it will be done at the rate it has."""
    return task.as_of_s + max(1e-3, task.expected_s * task.factor / max(1e-6, task.rate))


@dataclass(slots=True)
class _Watch:
    starts: dict[JobId, float] = field(default_factory=dict)
    ends: dict[JobId, float] = field(default_factory=dict)

    def __call__(self, state: State, event: Event) -> None:
        if isinstance(event, RunPlanned):
            self.starts.setdefault(event.run.job, event.at_s)
        elif isinstance(event, RunEnded) and state.jobs[event.run.job].ended:  # by a time limit, too
            self.ends[event.run.job] = event.at_s

    def outlooks(self, state: State, foreseen: Mapping[JobId, float]) -> dict[JobId, Outlook]:
        """Of jobs that have ended, and of those whose end is foreseen."""
        found: dict[JobId, Outlook] = {}
        for job, end_s in sorted({**foreseen, **self.ends}.items()):
            record = state.jobs.get(job)
            run = record.run if record is not None and record.holding else None
            start_s = run.planned_s if run is not None else self.starts.get(job, end_s)
            found[job] = Outlook(start_s, end_s)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What might be done. Everything that is set happens at once, now."""

    policy: Policy | None = None
    placer: Placer | None = None
    policy_options: Mapping[str, float | int | str | bool] | None = None
    add_nodes: tuple[Node, ...] = ()
    remove_nodes: tuple[str, ...] = ()
    submit: tuple[JobSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of a change on one job; None where it would not run (or is not there) at all."""

    job: JobId
    name: str
    before: Outlook | None
    after: Outlook | None


def what_if(
    state: State,
    book: SpeedBook,
    policy: Policy,
    placer: Placer,
    options: Options,
    now_s: float,
    change: Change,
) -> list[Effect]:
    """Start and end of every job before and after a change, by id. `state` is not changed."""
    before = run_forward(state, book, policy, placer, options, now_s).outlooks
    changed = _changed(state, change, now_s)
    if change.policy_options is not None:
        options = replace(options, policy=change.policy_options)
    after = run_forward(changed, book, change.policy or policy, change.placer or placer, options, now_s).outlooks
    return [
        Effect(job=job, name=changed.jobs[job].spec.name, before=before.get(job), after=after.get(job))
        for job in sorted(changed.active)
    ]


def _changed(state: State, change: Change, now_s: float) -> State:
    changed = copy_of(state)
    if change.policy is not None and change.policy.name != state.policy:
        changed.policy_memory = {}
    for node in change.add_nodes:
        apply(changed, NodeObserved(node=node, at_s=now_s))
    for name in change.remove_nodes:
        _empty(changed, name, now_s)
        apply(changed, NodeRemoved(node=name, at_s=now_s))
    for spec in change.submit:
        apply(changed, JobSubmitted(job=changed.last_job + 1, spec=spec, at_s=now_s))
    return changed


def _empty(state: State, node: str, now_s: float) -> None:
    """Runs on a node that goes away stop at a checkpoint, as when it is drained."""
    for job_id in list(state.active):
        job = state.jobs[job_id]
        if job.run is not None and job.allocation is not None and node in job.allocation.nodes:
            apply(state, RunEnded(run=job.run.id, reason=ExitReason.STOPPED, at_s=now_s))
