"""Derives the progress of one run from the lines of its log, in the unit of its job: epochs or steps. Pure.

`daemon.logwatch` calls `follow` with each line, and `report` regularly. Rules:
- An epoch counts as done when a line of a later one appears, so never too early.
- Numbers of a resumed script count over all attempts, unless it visibly counts from its own start.
- A number that does not fit (a banner, a typo) needs a second line before it counts, and never blocks later ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swell.core.progress import Seen

MAX_JUMP = 10
"""Up to this many epochs between two lines are plausible: many scripts print every tenth."""
USUAL_STRIDES = 20
"""Up to this many times the last distance between two lines is plausible, too."""
BACK = 3
"""This many lines in a row from earlier epochs mean that the number before was wrong, or the script started over."""
WITHIN_S = 30.0
"""A longer first epoch is reported once before its end, if its lines have `step` of `steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """The position within the current epoch: (step, time) of its first and its latest line."""

    first: tuple[int, float]
    latest: tuple[int, float]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is known so far. `before` units were done when the run began; `total` in all, 0 if unknown."""

    unit: str = "epoch"
    before: int = 0
    total: int = 0
    given: int = 0  # total of the job file: used again if the total of the log turns out too small
    beyond: int = 0  # lines in a row with a number above `total`
    number: int | None = None  # the latest that counts, as the script prints it
    at_s: float = 0.0  # of the first line with it
    origin: int = 0  # the number at which nothing is done
    left: int = 0  # units that were left when the run began, if the script counts only those
    stride: int = 0  # between the latest two numbers
    doubted: tuple[int, float] | None = None  # a number that needs a second line, with its time
    back: int = 0  # lines in a row from before `number`
    within: Within | None = None
    reported: int = 0  # units done, as of the last report
    reported_s: float = 0.0
    reports: int = 0
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the current epoch
    ended_metrics: Mapping[str, float] = field(default_factory=dict)  # of the one before

    @property
    def done(self) -> int:
        done = max(0, (self.number or 0) - self.origin)
        return min(done, self.total) if self.total else done


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`count` units have ended, each in `unit_s` on average; `done` of `total` (0: unknown) over all attempts. With
    `count` 0 no unit has ended, and `unit_s` is the estimated time of the current epoch."""

    done: int
    count: int
    unit_s: float
    total: int = 0
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


def follow(track: Track, seen: Seen, at_s: float) -> Track:
    """The track after one more line."""
    number, total = (seen.epoch, seen.epochs) if track.unit == "epoch" else (seen.step, seen.steps)
    if _counts_what_is_left(track, number, total):
        track = replace(track, left=total)
    if track.left and total == track.left:
        total = 0
    elif track.unit != "epoch" and track.total and total and total != track.total:
        return track  # the progress bar of an evaluation or a download
    elif track.left and track.unit != "epoch" and number is not None:
        number += track.origin  # other lines of such a script count over all attempts
    known = replace(track, total=total or track.total, samples_per_s=seen.samples_per_s or track.samples_per_s)
    if number is None:
        return _with_metrics(known, seen)
    if known.total and number > known.total:
        return _beyond(known, seen, number, at_s)
    known = replace(known, beyond=0) if known.beyond else known
    moved = _begin(known, number, total, at_s) if track.number is None else _move(known, number, at_s)
    if track.unit == "epoch" and moved.number != track.number and track.number is not None:
        moved = replace(moved, ended_metrics=moved.metrics, metrics={}, within=None, samples_per_s=seen.samples_per_s)
    return _within(_with_metrics(_last_index(moved, total), seen), seen, at_s)


def _counts_what_is_left(track: Track, number: int | None, total: int) -> bool:
    """Whether the script's progress bar counts only the remaining units, as `tqdm(range(start, 6000))` does. The
    checkpoint it resumed from may be older than the last report, so more may remain than is known."""
    if track.number is not None or number is None or not track.total - track.before <= total < track.total:
        return False
    return number <= (1 if track.unit == "epoch" else total // 10)


def _beyond(track: Track, seen: Seen, number: int, at_s: float) -> Track:
    """A number above the total. If several lines exceed it, it was that of a banner or of one stage, not the job's."""
    if track.beyond + 1 >= BACK and track.unit == "epoch" and number <= track.given and not seen.epochs:
        return follow(replace(track, total=track.given, beyond=0), seen, at_s)
    return _with_metrics(replace(track, beyond=track.beyond + 1), seen)


def _with_metrics(track: Track, seen: Seen) -> Track:
    return replace(track, metrics={**track.metrics, **seen.metrics}) if seen.metrics else track


def _begin(track: Track, number: int, total: int, at_s: float) -> Track:
    begun = replace(track, number=number, at_s=at_s, origin=_origin(track, number, total))
    return replace(begun, reported=begun.done, reported_s=at_s)


def _origin(track: Track, number: int, total: int) -> int:
    """The number at which nothing is done. Steps count from 0 over all attempts. Epochs begin at 0 or 1; a script that
    prints no total and begins with one of these counts from its own start."""
    if track.left:
        return (number if track.unit == "epoch" else 0) - (track.total - track.left)
    if track.unit != "epoch":
        return 0
    if not total and (track.before == 0 or number <= 1):
        return number - track.before
    return 0 if number == (0 if total else track.before) else 1


def _last_index(track: Track, total: int) -> Track:
    """A script that counts from 0 and reaches `2/2` (Lightning's Rich bar) prints the last number, not the total."""
    if track.unit == "epoch" and track.origin == 0 and total and track.number == total:
        return replace(track, total=total + 1)
    return track


def _move(track: Track, number: int, at_s: float) -> Track:
    assert track.number is not None  # begun
    if number == track.number:
        return replace(track, doubted=None, back=0) if track.doubted or track.back else track
    if number < track.number:
        return _back(track, number, at_s)
    usual = USUAL_STRIDES * track.stride if track.stride else 0
    if number - track.number <= (max(MAX_JUMP, usual) if track.unit == "epoch" else usual):
        return _ahead(track, number, at_s)
    if track.doubted is not None and 0 <= number - track.doubted[0] <= USUAL_STRIDES * (
        track.doubted[0] - track.number
    ):
        confirmed = _ahead(track, *track.doubted)
        return confirmed if number == confirmed.number else _ahead(confirmed, number, at_s)
    return replace(track, doubted=(number, at_s), back=0)


def _ahead(track: Track, number: int, at_s: float) -> Track:
    assert track.number is not None  # begun
    return replace(track, number=number, at_s=at_s, stride=number - track.number, doubted=None, back=0)


def _back(track: Track, number: int, at_s: float) -> Track:
    """A number below the latest one: it counts only after several such lines in a row."""
    if track.back + 1 < BACK:
        return replace(track, back=track.back + 1, doubted=None)
    origin = min(number, 1) - (track.before if track.origin < 0 else 0) if track.unit == "epoch" else 0
    begun = replace(track, number=number, at_s=at_s, origin=origin, stride=0, doubted=None, back=0)
    return replace(begun, reported=begun.done, reported_s=at_s)


def _within(track: Track, seen: Seen, at_s: float) -> Track:
    if track.unit != "epoch" or seen.epoch != track.number or seen.step is None or not seen.steps:
        return track
    latest = (seen.step, at_s)
    return replace(
        track, within=Within(first=track.within.first if track.within else latest, latest=latest, steps=seen.steps)
    )


def report(track: Track) -> Report | None:
    """The progress since the last report; None: there is none."""
    count = track.done - track.reported
    if track.number is None or count < 0:
        return None
    if count == 0:
        return _from_within(track)
    metrics = track.ended_metrics if track.unit == "epoch" else track.metrics
    return _reported(track, count, track.at_s, metrics)


def marked(track: Track) -> Track:
    """The track after a report."""
    return replace(track, reported=track.done, reported_s=track.at_s, reports=track.reports + 1)


def finish(track: Track, now_s: float) -> Report | None:
    """The last report of a script that ended with success: its last epoch is complete, too."""
    if track.number is None or track.unit != "epoch":
        return report(track)
    last = replace(track, number=track.number + 1, at_s=now_s)
    return _reported(last, last.done - track.reported, now_s, track.metrics)


def _reported(track: Track, count: int, at_s: float, metrics: Mapping[str, float]) -> Report | None:
    if count <= 0:
        return None
    unit_s = max(0.0, at_s - track.reported_s) / count
    return Report(
        done=track.done,
        count=count,
        unit_s=unit_s,
        total=track.total,
        samples_per_s=track.samples_per_s,
        metrics=dict(metrics),
    )


def _from_within(track: Track) -> Report | None:
    within = track.within
    if within is None or track.reports or within.latest[1] - within.first[1] < WITHIN_S:
        return None
    steps = within.latest[0] - within.first[0]
    if steps <= 0:
        return None
    unit_s = within.steps * (within.latest[1] - within.first[1]) / steps
    return Report(done=track.done, count=0, unit_s=unit_s, total=track.total, metrics=dict(track.metrics))
