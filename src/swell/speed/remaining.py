"""Estimates the remaining time of a job, in seconds at speed 1, and its certainty. `speed.book` calls `estimate`.

The sources, in this order: epochs left times the fitted epoch; its user's estimate for the requested size, minus the
work done; the lengths of jobs of its family; the loss curve, for a job that reports epochs but not their total; an
hour. As long as the length is not measured by the job's own epochs, it is also given as a distribution
(`speed.lengths`).
"""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from statistics import median

from swell.core.state import JobRecord
from swell.ports import Remaining
from swell.speed.adaptive import PHASES, GoodputSpeed, phase_of
from swell.speed.convergence import fit_losses
from swell.speed.curves import FittedSpeed
from swell.speed.epoch_work import EpochWork
from swell.speed.families import Family
from swell.speed.lengths import Lengths
from swell.speed.measurements import Measurements

PRIOR_REMAINING_S = 3600.0
LEAST_LEFT = 0.5
"""Minimum remaining part of a job of unknown length, relative to the work it has done."""

AFTER_LAST = 0.01
"""Remaining part, relative to its work so far, of a job that still runs after its last epoch (a last evaluation, an
export)."""


def estimate(
    job: JobRecord,
    measurements: Measurements,
    speed: FittedSpeed,
    family: Family,
    lengths: Lengths,
    done_1_s: float,
) -> Remaining:
    measured = _measured(job, measurements, speed, family)
    if measured is not None:
        return measured
    expected = _expected(job, measurements, speed, family, done_1_s)
    estimated_1_s = job.spec.estimated_s * _requested_speed(job, speed)
    guess_1_s = _by_first_epochs_s(job, family)
    length = lengths.of(family.name, estimated_1_s, guess_1_s, epochs=job.epochs_total)
    done_1_s = max(done_1_s, measurements.work_1_s(speed.fit.unit_1_s)) if job.may_be_stopped else 0.0
    return replace(expected, length_median_1_s=length.median_s, length_sigma=length.sigma, done_1_s=done_1_s)


def _measured(job: JobRecord, measurements: Measurements, speed: FittedSpeed, family: Family) -> Remaining | None:
    """From epochs of the job itself, or of members of its family with adaptive batch sizes; None: there are none."""
    as_of_s, fit = _as_of_s(job), speed.fit
    if isinstance(speed, GoodputSpeed) and job.epochs_total:
        return _adaptive(job, measurements, speed)
    left = max(0, job.epochs_total - job.epochs_done)
    if job.epochs_total and measurements.times and fit.unit_1_s:
        at_1_s = _left_1_s(job, measurements, fit.unit_1_s, family.course)
        if not left:
            at_1_s = max(at_1_s, AFTER_LAST * measurements.work_1_s(fit.unit_1_s))
        sigma = sqrt(0.03**2 + fit.spread**2 / max(1, min(left, fit.epochs)) + (0.2 / (1 + fit.epochs)) ** 2)
        return Remaining(at_speed_1_s=at_1_s, as_of_s=as_of_s, sigma=sigma, known=True)
    return None


def _expected(
    job: JobRecord, measurements: Measurements, speed: FittedSpeed, family: Family, done_1_s: float
) -> Remaining:
    as_of_s = _as_of_s(job)
    if job.spec.estimated_s > 0.0:
        total = job.spec.estimated_s * _requested_speed(job, speed)
        return _rest(total, _done(job, total, done_1_s), as_of_s, sigma=0.5, known=True)
    if family.lengths_s:
        total = _length_s(job, family)
        return _rest(total, _done(job, total, done_1_s), as_of_s, sigma=_spread(list(family.lengths_s)), known=False)
    by_first_epochs_s = _by_first_epochs_s(job, family)
    if by_first_epochs_s:
        return Remaining(at_speed_1_s=by_first_epochs_s, as_of_s=as_of_s, sigma=0.5, known=True)
    epoch_1_s = _epoch_1_s(job, measurements, speed) if measurements.times else 0.0
    if epoch_1_s:
        epochs, sigma = _epochs(measurements, family)
        left_epochs = max(epochs - job.epochs_done, LEAST_LEFT * job.epochs_done, 1.0)
        return Remaining(at_speed_1_s=left_epochs * epoch_1_s, as_of_s=as_of_s, sigma=sigma)
    return _rest(PRIOR_REMAINING_S, done_1_s, as_of_s, sigma=1.0, known=False)


def _by_first_epochs_s(job: JobRecord, family: Family) -> float:
    """The remaining time by the first epochs of members of its family; 0: there are none."""
    if not job.epochs_total or family.fit is None:
        return 0.0
    return family.fit.first_epoch_1_s * _epochs_left(job, family.course)


def _epoch_1_s(job: JobRecord, measurements: Measurements, speed: FittedSpeed) -> float:
    if isinstance(speed, GoodputSpeed):
        return speed.goodput.at(speed.fit.reference_type, 1, 1)[speed.phase] * _pace(job, measurements, speed)
    return measurements.epoch_1_s(speed.fit.unit_1_s)


def _adaptive(job: JobRecord, measurements: Measurements, speed: GoodputSpeed) -> Remaining:
    """The remaining epochs of each phase, at speed 1, scaled by this job's pace."""
    done = min(1.0, job.epochs_done / job.epochs_total) * PHASES
    phase = min(int(done), PHASES - 1)
    begun = speed.goodput.at(speed.fit.reference_type, 1, 1)[phase] * (done - phase)
    left_s = speed.goodput.left(speed.fit.reference_type, 1, 1)[phase] - begun
    at_1_s = left_s * job.epochs_total / PHASES * _pace(job, measurements, speed)
    sigma = sqrt(0.05**2 + (0.5 / (1 + measurements.count)) ** 2)
    return Remaining(at_speed_1_s=at_1_s, as_of_s=_as_of_s(job), sigma=sigma, known=True)


def _pace(job: JobRecord, measurements: Measurements, speed: GoodputSpeed) -> float:
    """The time of this job's last epochs, relative to the expectation of its family."""
    seen = [
        epoch_s / speed.goodput.at(key.gpu_type, key.gpus, key.nodes)[phase_of(epoch - 0.5, job.epochs_total)]
        for key, epoch_s, epoch in measurements.recent
    ]
    return median(seen) if seen else 1.0


def _left_1_s(job: JobRecord, measurements: Measurements, unit_1_s: float, course: EpochWork) -> float:
    """The remaining time: scaled by the last epochs of this job, with the course of its family for later epochs."""
    levels = [units / course.at((epoch - 0.5) / job.epochs_total) for units, epoch in measurements.recent_units()]
    return unit_1_s * median(levels) * _epochs_left(job, course)


def _epochs_left(job: JobRecord, course: EpochWork) -> float:
    """The remaining work in units of first epochs."""
    return job.epochs_total * course.between(job.epochs_done / job.epochs_total, 1.0)


def _length_s(job: JobRecord, family: Family) -> float:
    """The typical length of the family's jobs, scaled to the number of epochs of this one."""
    total = median(family.lengths_s)
    if job.epochs_total and family.epochs:
        total *= job.epochs_total / median(family.epochs)
    return total


def _as_of_s(job: JobRecord) -> float:
    run = job.run
    if run is None:
        return job.submitted_s
    if run.last_epoch_s is not None:
        return run.last_epoch_s
    return run.started_s if run.started_s is not None else job.submitted_s


def _requested_speed(job: JobRecord, speed: FittedSpeed) -> float:
    if job.spec.cpu_only:
        return 1.0
    curve = speed.curve(speed.fit.reference_type)
    return curve[min(max(1, job.spec.gpus.requested), len(curve) - 1)]


def _done(job: JobRecord, total: float, done_1_s: float) -> float:
    """The work done: by epochs if their total is known, else by its running time; 0 for a job that cannot resume."""
    if job.epochs_total:
        return total * min(1.0, job.epochs_done / job.epochs_total)
    return done_1_s if job.may_be_stopped else 0.0


def _rest(total: float, done: float, as_of_s: float, *, sigma: float, known: bool) -> Remaining:
    return Remaining(at_speed_1_s=max(total - done, LEAST_LEFT * done), as_of_s=as_of_s, sigma=sigma, known=known)


def _epochs(measurements: Measurements, family: Family) -> tuple[float, float]:
    """The expected total of epochs, and the relative deviation of the remaining work."""
    if family.epochs:
        return median(family.epochs), max(0.3, _spread([float(n) for n in family.epochs]))
    curve = fit_losses(measurements.losses)
    if curve is not None:
        return min(curve.epochs(), 100.0 * max(1, measurements.epochs)), 0.6
    return 2.0 * max(1, measurements.epochs), 1.0


def _spread(values: list[float]) -> float:
    """Robust relative deviation of the next value; a fixed one if there are fewer than three."""
    if len(values) < 3:
        return 0.7
    middle = median(values)
    return min(1.5, max(0.1, 1.48 * median(abs(log(max(v, 1e-9) / max(middle, 1e-9))) for v in values)))
