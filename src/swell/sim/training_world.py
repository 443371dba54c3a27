"""A world of measured training jobs (Pollux and Sia profiles): the job model of those projects, and what it reports.

A run makes no progress for its restart cost; then each epoch takes work / rate. Short epochs are reported together, as
the in-job library does. With an adaptive batch size the job chooses anew at each (re)start and epoch. Where runs save,
and so where they can stop, is in `sim.checkpoints`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from swell.core.events import (
    Batching,
    CheckpointSeen,
    EpochEnded,
    Event,
    ExitReason,
    RunEnded,
    RunStarted,
    Saves,
    TrainingBegan,
)
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.state import JobRecord, Run
from swell.sim.checkpoints import Checkpoints
from swell.sim.job_experience import Experience
from swell.sim.noise import Noise
from swell.sim.profiles import Application, Setting, Shape, canonical, packed
from swell.sim.workload import Arrival
from swell.sim.world import run_of

REPORT_S = 30.0
"""Epochs shorter than this are reported together; the first one of a run, if longer, is also reported after this."""


class Segment(NamedTuple):
    """From `start_s` the job advances at `rate` through `epoch`."""

    start_s: float
    epoch: int
    progress: float
    rate: float
    setting: Setting


@dataclass(slots=True)
class Trainee:
    """The truth about one job."""

    app: Application
    batch: int  # 0: adaptive
    epoch: int = 0
    progress: float = 0.0  # as of the last report or stop
    saved: tuple[int, float] = (0, 0.0)  # epoch and progress in its last checkpoint, where it saves by itself
    experience: Experience = field(default_factory=Experience)
    known: frozenset[str] = frozenset()  # types of GPU on which it has chosen a batch by experience
    gradients: tuple[float, float] = (0.0, 0.0)
    segments: list[Segment] = field(default_factory=list)  # since then
    factor: float = 1.0  # its true speed over its profile's
    run_factor: float = 1.0
    as_of_s: float = 0.0

    @property
    def done(self) -> bool:
        return self.epoch >= self.app.epochs

    def at(self, now_s: float) -> tuple[int, float]:
        """Epoch and progress at that time: in what was run through since the last report, or as of then."""
        last = None
        for segment in self.segments:
            if segment.start_s > now_s:
                break
            last = segment
        if last is None:
            return self.epoch, self.progress
        end = self.app.epoch_ends[last.epoch + 1]
        at = last.progress + last.rate * (now_s - last.start_s)
        over = at >= end * (1 - 1e-12)
        return last.epoch + over, end if over else at


def shape_of(allocation: Allocation) -> Shape:
    return canonical(tuple(len(part.gpus) for part in allocation.parts if part.gpus))


class Training:
    """The world. `applications` by family name; a job's application is in its spec's env."""

    def __init__(
        self,
        applications: Mapping[str, Application],
        *,
        restart_s: float | Mapping[str, float] = 30.0,
        per_node: Mapping[str, int] | None = None,
        noise: Noise | None = None,
        seed: int = 0,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._checkpoints = checkpoints or Checkpoints()
        self._applications = applications
        self._restart_s = restart_s
        self._per_node = dict(per_node or {})
        self._noise = noise or Noise()
        self._seed = seed
        self._novices: dict[str, Experience] = {}  # where jobs of each application begin
        self.trainees: dict[JobId, Trainee] = {}

    def submitted(self, job: JobRecord, arrival: Arrival) -> None:
        app = self._applications[job.spec.env["application"]]
        novice = self._novices.setdefault(app.name, Experience())
        trainee = Trainee(app=app, batch=0 if job.spec.adaptive_batch else job.spec.batch_size, experience=novice)
        trainee.factor = self._noise.of_job(job.id, self._seed)
        self.trainees[job.id] = trainee

    def launched(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        run = run_of(job)
        trainee = self.trainees[job.id]
        trainee.run_factor = trainee.factor * self._noise.of_run(run.id, self._seed)
        began_s = now_s + self.restart_s(trainee.app.name)
        trainee.as_of_s = began_s
        return (
            RunStarted(run=run.id, at_s=now_s),
            TrainingBegan(
                run=run.id,
                at_s=began_s,
                # What its last report covered: epochs that ended between that and a stop are in the next report.
                epoch=min(job.epochs_done, trainee.epoch),
                epochs=trainee.app.epochs,
                saves=self._checkpoints.saves,
            ),
        )

    def restart_s(self, application: str) -> float:
        if isinstance(self._restart_s, Mapping):
            return self._restart_s.get(application, 30.0)
        return self._restart_s

    def after(self, event: Event, job: JobRecord) -> Sequence[Event]:
        if isinstance(event, CheckpointSeen | RunEnded):
            return self._checkpoints.settle(event, job, run_of(job), self)
        if not isinstance(event, TrainingBegan | EpochEnded) or (isinstance(event, EpochEnded) and not event.count):
            return ()
        trainee, run = self.trainees[job.id], run_of(job)
        begins = isinstance(event, TrainingBegan)
        if begins:
            trainee.saved = (trainee.epoch, trainee.progress)
        self._settle(trainee, event.at_s, run.allocation.gpu_type)
        if trainee.done:
            return (RunEnded(run=run.id, reason=ExitReason.FINISHED, at_s=event.at_s, exit_code=0),)
        report = self._next_report(trainee, run, event.at_s)
        saves = self._checkpoints.next(run, event.at_s) if begins else ()
        if begins and report.at_s > event.at_s + REPORT_S and report.count == 1:
            return (replace(report, at_s=event.at_s + REPORT_S, epoch=trainee.epoch, count=0), report, *saves)
        return (report, *saves)

    def saved(self, job: JobRecord, now_s: float) -> None:
        trainee = self.trainees[job.id]
        trainee.saved = trainee.at(now_s)

    def left(self, job: JobRecord, now_s: float) -> None:
        self._settle(self.trainees[job.id], now_s, run_of(job).allocation.gpu_type)

    def stopping(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        trainee, run = self.trainees[job.id], run_of(job)
        if run.began_s is not None and not self._checkpoints.every_s:
            self._settle(trainee, now_s, run.allocation.gpu_type)
        return self._checkpoints.leave(job, run, now_s, trainee.epoch)

    def lost(self, job: JobRecord, now_s: float) -> None:
        """Back to its last checkpoint; without any of its own, that is its last report."""
        trainee = self.trainees[job.id]
        if self._checkpoints.every_s:
            trainee.epoch, trainee.progress = trainee.saved
        trainee.segments = []
        trainee.as_of_s = now_s

    def resized(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        trainee = self.trainees[job.id]
        run = run_of(job)
        self._settle(trainee, now_s, run.allocation.gpu_type)
        if run.began_s is None:
            return ()
        return (self._next_report(trainee, run, now_s), *self._checkpoints.next(run, now_s))

    def fair_s(self, job: JobRecord, share: Mapping[str, float]) -> float:
        return min(self._alone_s(job, gpu_type, gpus) for gpu_type, gpus in share.items() if gpus > 0)

    def _alone_s(self, job: JobRecord, gpu_type: str, gpus: float) -> float:
        trainee = self.trainees[job.id]
        app = trainee.app
        if gpu_type not in app.types:
            return float("inf")
        n = max(1, min(int(gpus), job.spec.gpus.max))
        rates = app.best_rates(gpu_type, packed(n, self._per_node.get(gpu_type, 4)), trainee.batch)
        running_s = float((app.work / rates).sum()) / min(1.0, gpus) / trainee.factor
        return self.restart_s(app.name) + running_s

    def _settle(self, trainee: Trainee, now_s: float, gpu_type: str) -> None:
        """Book the progress made since the last report, up to now."""
        if trainee.segments and trainee.segments[0].start_s <= now_s:
            trainee.known |= {gpu_type}
            trainee.epoch, trainee.progress = trainee.at(now_s)
        trainee.segments = []
        trainee.as_of_s = now_s

    def _next_report(self, trainee: Trainee, run: Run, now_s: float) -> EpochEnded:
        """Run ahead through one epoch, or several short ones with the same setting, and report them."""
        shape, gpu_type = shape_of(run.allocation), run.allocation.gpu_type
        at_s, epoch, progress = now_s, trainee.epoch, trainee.progress
        app, whole_s = trainee.app, 0.0
        setting = self._setting(trainee, shape, gpu_type)
        rates = app.rates(gpu_type, shape, setting)
        while True:
            rate = rates[epoch] * trainee.run_factor
            trainee.segments.append(Segment(at_s, epoch, progress, rate, setting))
            end = app.epoch_ends[epoch + 1]
            at_s += (end - progress) / rate
            whole_s += app.works[epoch] / rate
            self._experience(trainee, shape, gpu_type, setting, epoch)
            epoch, progress = epoch + 1, end
            if epoch >= app.epochs or at_s - now_s >= REPORT_S or self._setting(trainee, shape, gpu_type) != setting:
                break
        return self._report(trainee, run, shape, trainee.segments[0], at_s, epoch, whole_s)

    def _report(
        self, trainee: Trainee, run: Run, shape: Shape, first: Segment, at_s: float, epoch: int, whole_s: float
    ) -> EpochEnded:
        app, allocation, setting = trainee.app, run.allocation, first.setting
        count = epoch - first.epoch
        blur = self._noise.of_report(run.id, epoch, self._seed)
        epoch_s = whole_s / count * blur
        work = sum(app.works[first.epoch : epoch]) / count
        step_s = app.step_s(allocation.gpu_type, shape, setting) / trainee.run_factor * blur
        gpus = sum(shape)
        total = setting.total(gpus)
        return EpochEnded(
            run=run.id,
            at_s=at_s,
            epoch=epoch,
            count=count,
            epoch_s=epoch_s,
            step_s=step_s,
            samples_per_s=total / step_s,
            gpus=gpus,
            nodes=len(allocation.parts),
            gpu_type=allocation.gpu_type,
            batch_size=total,
            goodput=work * app.initial / epoch_s,  # an epoch is the same progress at any batch size
            batching=None if trainee.batch else self._batching(trainee, shape, allocation.gpu_type, setting, blur),
            # Where runs save by themselves a checkpoint is an event of its own: reports claim none.
            unsaved=max(0, epoch - run.epochs_before) if self._checkpoints.saves is Saves.OWN else 0,
        )

    def _batching(self, trainee: Trainee, shape: Shape, gpu_type: str, setting: Setting, blur: float) -> Batching:
        """As the job measured it: what it ran on and saw in its gradients, nothing of its profile."""
        app = trainee.app
        times = app.times(gpu_type)
        _, sync_s = times.at(shape, setting.atomic)
        sqr, var = trainee.gradients
        return Batching(
            initial=app.initial,
            largest=app.largest,
            local=setting.atomic,
            accumulate=setting.accumulate,
            local_min=times.min_local,
            local_max=times.max_local,
            sync_s=sync_s / trainee.run_factor * blur,
            grad_sqr=sqr,
            grad_var=var * app.initial,  # measured at the initial batch size: that of one sample
        )

    def _setting(self, trainee: Trainee, shape: Shape, gpu_type: str) -> Setting:
        gpus = sum(shape)
        if trainee.batch:
            return trainee.app.fixed(trainee.batch, gpus, gpu_type)
        return trainee.experience.choose(trainee.app, len(shape), gpus, gpu_type, trainee.gradients)

    def _experience(self, trainee: Trainee, shape: Shape, gpu_type: str, setting: Setting, epoch: int) -> None:
        if trainee.batch:
            return
        gpus = sum(shape)
        times_s = trainee.app.times(gpu_type).at(shape, setting.atomic)
        trainee.experience = trainee.experience.after(gpu_type, (len(shape), gpus, setting.atomic), times_s)
        trainee.gradients = trainee.app.gradients(setting.total(gpus), epoch)
