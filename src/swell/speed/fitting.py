"""Fits measurements of one job or a family: shape, typical epoch and relative speeds of GPU types.

`speed.book` calls it for jobs with news. Measurements on other GPU types than the reference are scaled to it by the
types' relative speeds: known ones at first, then those of the job's or the family's own measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp, log
from statistics import median

from swell.speed.epoch_time import DEFAULT_SHAPE, Point, Problem, Shape, fit
from swell.speed.families import Family
from swell.speed.fit import NOTHING_KNOWN, Corrections, Fit, correction_at
from swell.speed.known_gpu_types import OPTIMISM, prior_speed
from swell.speed.measurements import Configuration, Measurements, Times

MAX_WEIGHT = 5.0
"""Further epochs on one configuration add no weight to the fit of the shape."""
TRUST_DEFAULT = 0.05
TRUST_FAMILY = 0.5
SAME_LENGTH = 1.5
"""Members whose epochs on one type of GPU differ by less than this factor are assumed to train on the same data: their
times are compared directly, also between types."""


Latest = Sequence[tuple[Configuration, Times]]


def fit_job(measurements: Measurements, prior: Fit) -> Fit:
    """A job's measurements with its family's fit as the prior."""
    latest = list(measurements.latest())
    speeds = _type_speeds(measurements.reference_type, latest, prior)
    points = tuple(
        Point(
            gpus=key.gpus,
            nodes=key.nodes,
            time_s=times.typical_s * speeds[key.gpu_type],
            weight=min(float(times.weight), MAX_WEIGHT),
        )
        for key, times in latest
    )
    trust = TRUST_FAMILY if prior.points > 1 else TRUST_DEFAULT
    return _finish(measurements, latest, prior, fit(Problem(points=points, prior=prior.shape, trust=trust)), speeds)


def _type_speeds(reference: str, latest: Latest, prior: Fit) -> dict[str, float]:
    """Speed of each type relative to the job's reference: the measurements, weighted against the prior."""
    types = sorted({key.gpu_type for key, _ in latest})
    if types == [reference]:
        return {reference: 1.0}
    base = prior.type_speed(reference)
    on_reference = [t.typical_s / prior.shape.time(k.gpus, k.nodes) for k, t in latest if k.gpu_type == reference]
    unit = median(on_reference) if on_reference else 0.0
    speeds: dict[str, float] = {}
    for gpu_type in types:
        before = prior.type_speed(gpu_type) / base
        if gpu_type == reference or not unit:
            speeds[gpu_type] = 1.0 if gpu_type == reference else before
            continue
        here = [t.typical_s / prior.shape.time(k.gpus, k.nodes) for k, t in latest if k.gpu_type == gpu_type]
        weight = len(here) / (len(here) + 0.25)
        speeds[gpu_type] = exp(weight * log(unit / median(here)) + (1 - weight) * log(before))
    return speeds


def _finish(measurements: Measurements, latest: Latest, prior: Fit, shape: Shape, speeds: Mapping[str, float]) -> Fit:
    most = max(latest, key=lambda entry: (entry[1].count, entry[0]))[1]
    corrections = _corrections(latest, shape, speeds, prior)
    return Fit(
        shape=shape.relative(),
        unit_1_s=shape.time(1, 1) * correction_at(corrections.get(measurements.reference_type, ()), 1),
        spread=max(0.02, most.spread),
        points=len(latest),
        epochs=measurements.count,
        reference_type=measurements.reference_type,
        type_speeds={**prior_types(prior, measurements.reference_type), **speeds},
        optimism=OPTIMISM,  # a running job can try a type and return; for its first placement expectations count
        corrections=corrections,
    )


def prior_types(prior: Fit, reference: str) -> dict[str, float]:
    """The family's measured speeds of types, relative to another reference."""
    base = prior.type_speed(reference)
    return {gpu_type: prior.type_speed(gpu_type) / base for gpu_type in prior.type_speeds}


def _corrections(latest: Latest, shape: Shape, speeds: Mapping[str, float], prior: Fit) -> dict[str, Corrections]:
    """Corrections by type where the four terms do not fit: the job's own at sizes it has measured; at sizes that only
    its family has measured, the family's curve at this job's level."""
    found: dict[str, dict[int, tuple[int, float]]] = {}
    for key, times in latest:
        fitted = shape.time(key.gpus, key.nodes) / speeds[key.gpu_type]
        trusted = times.weight / (times.weight + 1.0)
        ratio = exp(trusted * log(times.typical_s / fitted))
        before = found.setdefault(key.gpu_type, {}).get(key.gpus)
        if before is None or key.nodes < before[0]:
            found[key.gpu_type][key.gpus] = (key.nodes, ratio)
    for gpu_type, by_size in found.items():
        for gpus, nodes, time in _family_curve(latest, gpu_type, prior):
            by_size.setdefault(gpus, (nodes, time * speeds[gpu_type] / shape.time(gpus, nodes)))
    return {t: tuple((gpus, *entry) for gpus, entry in sorted(by.items())) for t, by in sorted(found.items())}


def _family_curve(latest: Latest, gpu_type: str, prior: Fit) -> list[tuple[int, int, float]]:
    """(GPUs, nodes, time) at the sizes that the family has measured on this type, at the level of this job."""
    corrections = prior.corrections.get(gpu_type, ())
    if not corrections:
        return []
    levels = [
        times.typical_s / (prior.shape.time(key.gpus, key.nodes) * correction_at(corrections, key.gpus))
        for key, times in latest
        if key.gpu_type == gpu_type
    ]
    level = median(levels)
    return [(k, m, level * time) for k, m, time in _measured_curve(prior.shape, corrections)]


@lru_cache(maxsize=1024)
def _measured_curve(shape: Shape, corrections: Corrections) -> list[tuple[int, int, float]]:
    return [(k, m, shape.time(k, m) * ratio) for k, m, ratio in corrections]


def fit_family(family: Family) -> Fit:
    """One shape for the family's last members, and their common epoch time if they have one."""
    members = [measurements for measurements in family.members.values() if measurements.times]
    if not members:
        return NOTHING_KNOWN
    reference = members[-1].reference_type
    found = _fit_members(members, reference, [1.0] * len(members))
    if not (_alike(members) or _explains(found, members)):
        found = _fit_members(members, reference, [_scale(measurements, reference) for measurements in members])
    spread = max(found.spread, 0.1)
    return Fit(
        shape=found.shape,
        first_epoch_1_s=median(_first_1_s(measurements, found) for measurements in members),
        spread=spread,
        points=found.points,
        epochs=found.epochs,
        reference_type=reference,
        type_speeds=found.type_speeds,
        corrections=found.corrections,
    )


def _fit_members(members: Sequence[Measurements], reference: str, scales: Sequence[float]) -> Fit:
    """One fit of all members, with the times of each divided by its scale."""
    pooled: dict[Configuration, list[tuple[float, int]]] = {}
    for measurements, scale in zip(members, scales, strict=True):
        for key, times in measurements.latest():
            into = pooled.setdefault(Configuration(key.gpu_type, key.gpus, key.nodes), [])
            into.append((times.typical_s / scale, times.count))
    together = {key: _pooled(of) for key, of in pooled.items()}
    count = sum(times.count for times in together.values())
    return fit_job(Measurements(times=together, reference_type=reference, count=count), NOTHING_KNOWN)


def _pooled(members: Sequence[tuple[float, int]]) -> Times:
    """Typical times of several jobs, with their numbers of epochs, as the times of one job."""
    last = [typical_s for typical_s, _ in members]
    return Times(last=last, typical_s=median(last), count=sum(count for _, count in members))


def _first_1_s(measurements: Measurements, fit: Fit) -> float:
    """The member's first epoch on one reference GPU."""
    units_s = [
        times.typical_s * fit.type_speed(key.gpu_type) / fit.shape.time(key.gpus, key.nodes)
        for key, times in measurements.latest()
    ]
    return measurements.first_units * median(units_s)


def _alike(members: Sequence[Measurements]) -> bool:
    """Whether they seem to train on the same data, by the types that several of them have used."""
    by_type: dict[str, list[float]] = {}
    for measurements in members:
        for gpu_type, times_s in _on_one(measurements).items():
            by_type.setdefault(gpu_type, []).append(median(times_s))
    return all(max(times_s) <= SAME_LENGTH * min(times_s) for times_s in by_type.values())


def _explains(found: Fit, members: Sequence[Measurements]) -> bool:
    """Whether the fitted shape explains all members without scales. Two of them must have been measured at the same
    size: otherwise a shape can explain jobs of any lengths."""
    by_type: dict[str, list[float]] = {}
    sizes: list[tuple[str, int, int]] = []
    for measurements in members:
        for key, times in measurements.latest():
            by_type.setdefault(key.gpu_type, []).append(times.typical_s / found.shape.time(key.gpus, key.nodes))
            sizes.append((key.gpu_type, key.gpus, key.nodes))
    alike = all(max(ratios) <= SAME_LENGTH * min(ratios) for ratios in by_type.values())
    return alike and len(set(sizes)) < len(sizes)


def _scale(measurements: Measurements, reference: str) -> float:
    """The member's epoch on one reference GPU, by the default shape."""
    reference_speed = prior_speed(reference)
    on_one = _on_one(measurements)
    return median(time_s * prior_speed(t) / reference_speed for t, times_s in on_one.items() for time_s in times_s)


def _on_one(measurements: Measurements) -> dict[str, list[float]]:
    """The member's epoch on one GPU by type, derived from each measured size by the default shape."""
    found: dict[str, list[float]] = {}
    for key, times in measurements.latest():
        found.setdefault(key.gpu_type, []).append(times.typical_s / DEFAULT_SHAPE.time(key.gpus, key.nodes))
    return found
