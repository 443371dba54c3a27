"""The speed book: the speed and the remaining time of each job. `Book` learns both from events.

The daemon's committer and the simulator feed it events; `plan.snapshotter` queries it for every view. It may not read a
clock or the state. Learning is O(1) per event; models are fitted on demand, for all jobs with news at once. Memory is
bounded: the last epochs of each configuration of a job, the last members of a family, `KEEP_JOBS` jobs and
`KEEP_FAMILIES` families.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from swell.core.events import (
    EpochEnded,
    Event,
    ExitReason,
    JobCancelled,
    JobRemoved,
    JobSubmitted,
    RunEnded,
    RunPlanned,
    RunResized,
    RunStarted,
    SpeedsFitted,
    TrainingBegan,
)
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.state import JobRecord
from swell.ports import Remaining
from swell.speed import keeping
from swell.speed.adaptive import Goodput, Practice, phase_of
from swell.speed.curves import FittedSpeed
from swell.speed.describe import Description, describe
from swell.speed.epoch_work import FLAT, EpochWork, middles, usual_course
from swell.speed.families import Family, family_of
from swell.speed.fit import NOTHING_KNOWN, Fit
from swell.speed.fitting import fit_family, fit_job
from swell.speed.gpu_type_ratios import NOTHING_COMPARED, type_ratios_of
from swell.speed.lengths import Lengths
from swell.speed.measurements import Measurements
from swell.speed.remaining import estimate

KEEP_JOBS = 50_000
KEEP_ENDED = 200
"""Maximum number of finished jobs that wait for their last fit; their family learns nothing from older ones."""
KEEP_FAMILIES = 5_000
COMPARE_FAMILIES = 100
"""Number of most recent families from which ratios between GPU types are learned."""
NO_NODES: Mapping[str, int] = {}
_MADE_ANEW = frozenset({"asked", "per_node", "record", "speed"})
"""Fields of an entry that are not kept, because they are computed again. Records may hold secrets."""


class _Entry:
    """One job in the book."""

    __slots__ = (
        "adaptive",
        "allocation",
        "asked",
        "asked_gpus",
        "edition",
        "epochs_total",
        "estimated_s",
        "fit",
        "goodput",
        "home",
        "lengths_edition",
        "made_for",
        "measurements",
        "per_node",
        "planned_s",
        "record",
        "remaining",
        "since_s",
        "speed",
        "work_1_s",
    )

    def __init__(self) -> None:
        self.home: Family | None = None
        self.edition = -1  # that of the family when `speed` and `remaining` were made
        self.measurements = Measurements()
        self.fit: Fit | None = None  # of its own measurements
        self.adaptive: bool | None = None  # whether it reports an adaptive batch; None: no report yet
        self.goodput: Goodput | None = None  # the family's, for jobs with an adaptive batch size
        self.epochs_total = 0
        self.asked_gpus = 1
        self.estimated_s = 0.0  # by its user, at the requested size
        self.lengths_edition = -1  # that of `Lengths` when `remaining` was made
        self.allocation: Allocation | None = None
        self.planned_s: float | None = None  # of its run, until that trains
        self.since_s: float | None = None
        self.work_1_s = 0.0  # done in ended runs, at speed 1
        self.per_node: Mapping[str, int] = NO_NODES
        self.speed: FittedSpeed | None = None
        self.asked: JobRecord | None = None  # the one `speed` was made for, if it depends on the job's progress
        self.record: JobRecord | None = None  # the one `remaining` was made for
        self.remaining: Remaining | None = None
        self.made_for: tuple[
            object, ...
        ] = ()  # in a book that was restored: the print of `record`, which is another object now

    def __getstate__(self) -> dict[str, object]:
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in _MADE_ANEW}
        return {**kept, "made_for": () if self.record is None else _print_of(self.record)}

    def __setstate__(self, kept: Mapping[str, object]) -> None:
        self.__init__()  # type: ignore[misc]  # for the fields that are not kept
        for name, value in kept.items():
            setattr(self, name, value)


def _print_of(record: JobRecord) -> tuple[object, ...]:
    """A value that differs for any two records of a job between which the book learned something about it."""
    run = record.run
    now = (record.state.value, record.epochs_done, record.epochs_total, record.attempts, record.failures, record.ran_s)
    return now if run is None else (*now, run.started_s, run.began_s, run.changed_s, run.last_epoch_s, run.ended_s)


class Book:
    """`fits_on_ask`: each query fits everything learned so far. Otherwise models are fitted at `SpeedsFitted` events:
    then answers depend only on the log, not on the times of queries."""

    follows_records = False  # a report of one job also changes answers about others of its family

    def __init__(self, *, fits_on_ask: bool = True) -> None:
        self._fits_on_ask = fits_on_ask
        self._jobs: dict[JobId, _Entry] = {}
        self._families: dict[str, Family] = {}
        self._priors: dict[str, Fit] = {}  # by reference type
        self._shared: dict[tuple[int, int, int], tuple[Fit, Mapping[str, int], FittedSpeed]] = {}
        self._news: dict[JobId, None] = {}  # jobs to fit again
        self._ended: deque[tuple[JobId, _Entry]] = deque(maxlen=KEEP_ENDED)  # finished jobs that wait for a last fit
        self._family_news: dict[str, None] = {}
        self._published: dict[str, Family] = {}  # families as of the last fit
        self._stale = False  # a family has learned something since it was published
        self._lengths = Lengths()
        self._type_ratios = NOTHING_COMPARED  # between GPU types
        self._practice_news: dict[str, None] = {}  # families with news of adaptive batches
        self._type_news: dict[str, None] = {}  # families whose ratios of GPU types may have changed
        self._usual: tuple[float, ...] = FLAT  # course of training, over all families
        self._reports = 0  # number that courses were learned from
        self._usual_at = 0  # `_reports` when `_usual` was made

    # -- keeping

    def keep(self) -> bytes:
        """Everything learned, as bytes for `restore` of the same version."""
        return keeping.keep(
            {name: value for name, value in vars(self).items() if name not in ("_shared", "_fits_on_ask")}
        )

    def restore(self, kept: bytes) -> bool:
        """Become the book that was kept, with equal answers. False, and empty, if the bytes are of another version."""
        found = keeping.restore(kept)
        self.__init__(fits_on_ask=self._fits_on_ask)  # type: ignore[misc]
        if not isinstance(found, dict) or not found.keys() <= vars(self).keys():
            return False
        vars(self).update(found)
        return True

    # -- learning

    def learn(self, event: Event) -> None:
        kind = type(event)
        if kind is EpochEnded:
            self._epoch(event)  # type: ignore[arg-type]  # kind says so
        elif isinstance(event, JobSubmitted):
            entry = self._enter(event.job, family_of(event.spec))
            entry.epochs_total = event.spec.epochs
            entry.asked_gpus, entry.estimated_s = max(1, event.spec.gpus.requested), event.spec.estimated_s
        elif isinstance(event, TrainingBegan):
            self._began(event)
        elif isinstance(event, RunPlanned | RunStarted | RunResized | RunEnded):
            self._run(event)
        elif isinstance(event, JobCancelled | JobRemoved):
            self._forget(event.job)
        elif kind is SpeedsFitted:
            self._fit_all()

    def _enter(self, job: JobId, family: str = "") -> _Entry:
        entry = self._jobs.get(job)
        if entry is None:
            entry = self._jobs[job] = _Entry()
            if len(self._jobs) > KEEP_JOBS:
                self._forget(next(iter(self._jobs)))
        if family and entry.home is None:
            entry.home = self._family(family)
            if entry.measurements.times:
                entry.home.join(job, entry.measurements)
        return entry

    def _family(self, name: str) -> Family:
        family = self._families.pop(name, None) or self._new_family(name)
        self._families[name] = family  # last in order: the most recent
        if len(self._families) > KEEP_FAMILIES:
            oldest = next(iter(self._families))
            del self._families[oldest]
            self._published.pop(oldest, None)
        return family

    def _new_family(self, name: str) -> Family:
        family = Family(name=name, course=EpochWork(self._usual))
        if not self._fits_on_ask:
            self._published[name] = family.frozen()
        return family

    def _epoch(self, event: EpochEnded) -> None:
        job = event.run.job
        entry = self._enter(job)
        entry.epochs_total = event.epochs or entry.epochs_total
        worth_fitting = entry.measurements.add(event)
        if not event.epoch_s:
            return  # from the run's own record, which has progress but no speeds
        family, batching = entry.home, event.batching
        entry.adaptive = batching is not None
        if family is not None and batching is not None:
            family.practice = family.practice or Practice(self._type_ratios)
            family.practice.add(event, batching, entry.epochs_total)
            self._practice_news[family.name] = None
            if len(family.practice.points) > 1:
                self._type_news[family.name] = None
            if family.practice.ready:
                return
        if worth_fitting:
            self._news[job] = None
        if family is not None:
            self._add_to_course(family.course, entry, event)
            if job not in family.members:
                family.join(job, entry.measurements)
            family.reports += max(1, event.count)
            if family.worth_fitting:
                self._family_news[family.name] = None

    def _began(self, event: TrainingBegan) -> None:
        entry = self._enter(event.run.job)
        entry.epochs_total = event.epochs or entry.epochs_total
        planned_s, entry.planned_s = entry.planned_s, None
        if entry.home is not None and planned_s is not None:
            before = entry.home.edition
            entry.home.began(event.at_s - planned_s, again=event.run.attempt > 1)
            self._stale = self._stale or entry.home.edition != before

    def _add_to_course(self, course: EpochWork, entry: _Entry, event: EpochEnded) -> None:
        total, measurements = entry.epochs_total, entry.measurements
        if not total or not measurements.recent:
            return
        key, epoch_s, epoch = measurements.recent[-1]
        reached = middles((epoch - max(1, event.count)) / total, epoch / total)
        if not reached:
            return
        course.add(reached, epoch_s / measurements.times[key].typical_s / measurements.first_units)
        self._reports += 1
        if self._reports > self._usual_at + self._usual_at // 8:  # ever less often, so that it costs little
            self._usual_at = self._reports
            self._usual = usual_course(family.course for family in self._families.values())
            for family in self._families.values():
                family.course.follow(self._usual)

    def _run(self, event: RunPlanned | RunStarted | RunResized | RunEnded) -> None:
        entry = self._enter(event.run.job)
        if isinstance(event, RunPlanned):
            entry.allocation, entry.since_s, entry.planned_s = event.allocation, None, event.at_s
            return
        if isinstance(event, RunStarted):
            entry.since_s = event.at_s
            return
        if entry.since_s is not None and entry.allocation is not None:
            entry.work_1_s += max(0.0, event.at_s - entry.since_s) * self._rate(entry, entry.allocation)
        if isinstance(event, RunResized):
            entry.allocation, entry.since_s = event.allocation, event.at_s
            return
        entry.allocation, entry.since_s = None, None
        if event.reason is ExitReason.FINISHED:
            self._finished(event.run.job, entry)

    def _rate(self, entry: _Entry, allocation: Allocation) -> float:
        known = entry.fit or (entry.home.fit if entry.home else None) or NOTHING_KNOWN
        return known.type_speed(allocation.gpu_type) / known.shape.time(allocation.gpus, len(allocation.parts))

    def _finished(self, job: JobId, entry: _Entry) -> None:
        """The job has ended: its family learns its length."""
        if job in self._news and entry.home is not None:
            self._ended.append((job, entry))  # fitted once, with the others: keeps a replay of many short jobs fast
        else:
            self._tell_family(job, entry)
        self._forget(job)

    def _tell_family(self, job: JobId, entry: _Entry) -> None:
        if entry.home is not None:
            work_1_s = entry.measurements.work_1_s(entry.fit.unit_1_s) if entry.fit else entry.work_1_s
            before = entry.home.edition
            entry.home.finished(entry.measurements.epochs, work_1_s)
            self._stale = self._stale or entry.home.edition != before
            self._saw_length(job, entry, work_1_s)

    def _saw_length(self, job: JobId, entry: _Entry, work_1_s: float) -> None:
        if entry.home is not None:
            known = entry.fit or entry.home.fit or NOTHING_KNOWN
            estimated_1_s = entry.estimated_s / known.shape.time(entry.asked_gpus, 1)
            self._lengths.saw(job, entry.home.name, work_1_s, estimated_1_s, entry.epochs_total)

    def _forget(self, job: JobId) -> None:
        self._jobs.pop(job, None)
        self._news.pop(job, None)

    # -- answering

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> FittedSpeed:
        entry = self._current(job)
        speed = entry.speed
        if entry.goodput is not None:
            return self._adaptive_speed(job, entry, entry.goodput, gpus_per_node)
        if speed is None or entry.per_node is not gpus_per_node or (entry.fit and speed.fit is not entry.fit):
            speed = self._speed(job, entry, gpus_per_node)
        return speed

    def remaining(self, job: JobRecord) -> Remaining:
        """The remaining time; computed again if the record has changed or something was learned of the job."""
        entry = self._current(job)
        made = entry.remaining
        if entry.made_for:
            entry.record = job if entry.record is None and entry.made_for == _print_of(job) else entry.record
            entry.made_for = ()
        if made is None or entry.record is not job:
            fresh = self._estimate(job, entry)
            entry.remaining = made = made if made == fresh and made is not None else fresh
            entry.record = job
        return made

    def alone(self, job: JobId) -> bool:
        """Always False: this book does not observe shared GPUs, as `placement.interference` does."""
        return False

    def _current(self, job: JobRecord) -> _Entry:
        """The job's entry; first fits everything with news, if `fits_on_ask`."""
        if self._fits_on_ask:
            self._fit_all()
        entry = self._jobs.get(job.id)
        if entry is None or entry.home is None:
            entry = self._enter(job.id, family_of(job.spec))
        home = entry.home
        if entry.lengths_edition != self._lengths.edition:
            entry.lengths_edition = self._lengths.edition
            if entry.remaining is not None and entry.remaining.length_median_1_s:
                entry.record, entry.made_for = None, ()
        if home is not None:
            published = self._published_of(home)
            if entry.edition != published.edition:
                entry.edition = published.edition
                entry.record, entry.made_for = None, ()
                entry.speed = entry.speed if entry.fit else None
                entry.fit = self._completed(entry.fit) if entry.fit else None
            if home.practice is not None and entry.adaptive is not False:
                goodput = home.practice.goodput  # of jobs with adaptive batch sizes, as last fitted
                if entry.goodput is not goodput:
                    entry.goodput, entry.record, entry.speed, entry.made_for = goodput, None, None, ()
        return entry

    def describe(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Description:
        """The job's speed for people."""
        speed = self.speed(job, gpus_per_node)
        entry = self._current(job)
        home = entry.home or Family()
        types = tuple(sorted(gpus_per_node))
        return describe(entry.measurements, speed, self.remaining(job), home, types)

    def _speed(self, job: JobRecord, entry: _Entry, gpus_per_node: Mapping[str, int]) -> FittedSpeed:
        fit = entry.fit or (entry.home.fit if entry.home else None) or self._prior(job, gpus_per_node)
        before = entry.speed
        if before is None or before.fit is not fit or entry.per_node != gpus_per_node:
            entry.speed = self._make(fit, job.spec.gpus.max, gpus_per_node, shared=entry.fit is None)
        entry.per_node = gpus_per_node
        assert entry.speed is not None  # made here or before
        return entry.speed

    def _adaptive_speed(
        self, job: JobRecord, entry: _Entry, goodput: Goodput, gpus_per_node: Mapping[str, int]
    ) -> FittedSpeed:
        """Jobs of a family in the same phase share one object, and so its curves."""
        if entry.speed is not None and entry.asked is job and entry.per_node is gpus_per_node:
            return entry.speed
        entry.asked = job
        phase = phase_of(job.epochs_done, job.epochs_total)
        speed = goodput.speed(phase, job.spec.gpus.max, gpus_per_node)
        if speed is not entry.speed:
            entry.speed, entry.per_node, entry.record = speed, gpus_per_node, None
        return speed

    def _make(self, fit: Fit, most: int, gpus_per_node: Mapping[str, int], *, shared: bool) -> FittedSpeed:
        """Jobs without measurements of their own share one object, and so its curves."""
        if not shared:
            return FittedSpeed(fit, most, gpus_per_node)
        key = (id(fit), id(gpus_per_node), most)
        found = self._shared.get(key)
        if found is None or found[0] is not fit:
            if len(self._shared) > KEEP_FAMILIES:
                self._shared.clear()
            found = self._shared[key] = (fit, gpus_per_node, FittedSpeed(fit, most, gpus_per_node))
        return found[2]

    def _prior(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Fit:
        """The prior of a job without measurements, relative to the first GPU type that it would use."""
        wanted = [*job.spec.gpus.prefer, *job.spec.gpus.types, *sorted(gpus_per_node)]
        reference = next((t for t in wanted if t in gpus_per_node), "")
        found = self._priors.get(reference)
        if found is None:
            found = self._priors[reference] = self._completed(Fit(reference_type=reference))
        return found

    def _estimate(self, job: JobRecord, entry: _Entry) -> Remaining:
        speed = self.speed(job, entry.per_node)
        family = self._published_of(entry.home) if entry.home else Family()
        left = estimate(job, entry.measurements, speed, family, self._lengths, entry.work_1_s)
        return left if family.start_s is None else replace(left, start_s=family.start_s)

    def _published_of(self, family: Family) -> Family:
        """The family as of the last fit, so that cached answers do not depend on the times of queries."""
        return family if self._fits_on_ask else self._published.get(family.name, family)

    # -- fitting

    @property
    def has_news(self) -> bool:
        """Whether something was learned that a fit would use."""
        fits = self._news or self._family_news or self._ended or self._practice_news or self._type_news
        return bool(fits or self._stale or self._lengths.due)

    def _fit_all(self) -> None:
        if self._news or self._family_news or self._ended:
            self._fit()
        for name in self._practice_news:
            family = self._families.get(name)
            if family is not None and family.practice is not None:
                family.practice.fit()
        self._practice_news.clear()
        if self._type_news:
            self._compare_types()
        self._lengths.publish()
        self._stale = False
        if not self._fits_on_ask:
            self._publish()

    def _publish(self) -> None:
        for name, family in self._families.items():
            published = self._published.get(name)
            if published is None or published.edition != family.edition:
                self._published[name] = family.frozen()

    def _fit(self) -> None:
        for name in self._family_news:
            family = self._families.get(name)
            if family is not None:
                fit = self._completed(fit_family(family))
                family.learned(fit)
                if len(fit.log_speeds) > 1:
                    self._type_news[name] = None
        self._family_news.clear()
        going_on = [(job, entry) for job in self._news if (entry := self._jobs.get(job)) is not None]
        ended = list(self._ended)
        self._news.clear()
        self._ended.clear()
        for job, entry in (*going_on, *ended):
            if not entry.measurements.times:
                continue
            prior = (entry.home.fit if entry.home else None) or NOTHING_KNOWN
            entry.fit = self._completed(fit_job(entry.measurements, prior))
            entry.record, entry.made_for = None, ()
            self._saw_length(job, entry, entry.measurements.epoch_1_s(entry.fit.unit_1_s) * entry.epochs_total)
        for job, entry in ended:
            self._tell_family(job, entry)

    # -- comparing GPU types

    def _compare_types(self) -> None:
        """Passes new ratios between GPU types on to all families: some have not tried every type."""
        asked = [family for name in self._type_news if (family := self._families.get(name)) is not None]
        self._type_news.clear()
        otherwise = [family for family in asked if family.compare()]
        if not otherwise:
            return
        comparing = [family.types for family in self._families.values() if len(family.types) > 1]
        type_ratios = type_ratios_of(comparing[-COMPARE_FAMILIES:])
        if not type_ratios.differs(self._type_ratios):
            return
        self._type_ratios = type_ratios
        self._priors.clear()
        for family in self._families.values():
            family.follow(type_ratios)
            if family.practice is not None:
                family.practice.fit()
        for entry in self._jobs.values():  # also of jobs without a query before their run ends
            entry.fit = self._completed(entry.fit) if entry.fit else None

    def _completed(self, fit: Fit) -> Fit:
        return replace(fit, type_ratios=self._type_ratios)
