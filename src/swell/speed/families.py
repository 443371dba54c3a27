"""Families: jobs that train the same thing share what was learned of their speed and length. `speed.book` keeps them.

A job's family is specified by its user. If unset, it is derived from the command: image, program, script and the model
it names, regardless of numbers; a plain shell line without a script is identified by the job's name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise

from swell.core.job import JobSpec
from swell.speed.adaptive import Practice
from swell.speed.epoch_work import EpochWork
from swell.speed.fit import Fit
from swell.speed.gpu_type_ratios import LogSpeeds, TypeRatios
from swell.speed.measurements import Measurements
from swell.speed.recent_median import RecentMedian, after

KEEP_MEMBERS = 12
KEEP_LENGTHS = 32
LEAST_START_S = 0.1
SAME_START = 0.1
"""Starts that differ by less than this part count as equally long."""

_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+")
_SCRIPT = re.compile(r"\.(py|sh|r|jl|lua)$", re.IGNORECASE)
_MODEL_OPTION = re.compile(r"^--?(model|arch|network|net|config|dataset|data|task|size)(_?name)?(?:=(.+))?$")


def family_of(spec: JobSpec) -> str:
    if spec.family:
        return spec.family
    words = _words(spec.command)
    script = next((_base(w) for w in words if _SCRIPT.search(w)), "") or _module(words)
    if not script:
        return f"name:{_plain(spec.name)}|{spec.image}"
    return "|".join([f"run:{_plain(script)}", *_models(words), _plain(spec.image)])


def _words(command: Sequence[str]) -> list[str]:
    """The words of a command; a shell line is split."""
    if len(command) == 3 and command[1] == "-c":
        return command[2].split()
    return list(command)


def _module(words: list[str]) -> str:
    return next((after for word, after in pairwise(words) if word == "-m"), "")


def _models(words: list[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(words):
        match = _MODEL_OPTION.match(word)
        if match:
            value = match.group(3) or (words[index + 1] if index + 1 < len(words) else "")
            found.append(f"{match.group(1)}={_base(value)}")
    return found


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _plain(text: str) -> str:
    return _NUMBER.sub("#", text.lower())


@dataclass(slots=True)
class Family:
    """What was learned of the last members. `lengths_s`: the total work at speed 1 of those that finished."""

    name: str = ""
    members: dict[int, Measurements] = field(default_factory=dict)
    lengths_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEEP_LENGTHS))
    epochs: deque[int] = field(default_factory=lambda: deque(maxlen=KEEP_LENGTHS))
    fit: Fit | None = None
    course: EpochWork = field(default_factory=EpochWork)  # of members with a fixed batch size
    practice: Practice | None = None  # of members with adaptive batch sizes
    edition: int = 0  # grows when the estimates of its jobs change
    reports: int = 0  # epochs reported in total
    fitted_at: int = 0  # `reports` when it was last fitted
    ends: int = 0  # members that finished in total
    types: LogSpeeds = field(default_factory=dict)  # measured speeds of GPU types, as last compared
    first_starts: RecentMedian | None = None
    restarts: RecentMedian | None = None  # they load a checkpoint as well, so they count alone once there are any
    start_s: float | None = None  # typical time from planned to training

    def join(self, job: int, measurements: Measurements) -> None:
        self.members.pop(job, None)
        self.members[job] = measurements
        if len(self.members) > KEEP_MEMBERS:
            del self.members[next(iter(self.members))]

    def learned(self, fit: Fit) -> None:
        self.fit = fit
        self.fitted_at = self.reports
        self.edition += 1

    def compare(self) -> bool:
        """Whether its measured speeds of GPU types have changed since the last call."""
        before, goodput = self.types, self.practice.goodput if self.practice is not None else None
        if goodput is not None:
            self.types = goodput.log_speeds()
        elif self.fit is not None:
            self.types = self.fit.log_speeds
        return self.types != before

    def follow(self, type_ratios: TypeRatios) -> None:
        """Use these ratios of other families for types that no member has tried."""
        if self.fit is not None:
            self.fit = replace(self.fit, type_ratios=type_ratios)
        if self.practice is not None:
            self.practice.follow(type_ratios)
        self.edition += 1

    def began(self, start_s: float, *, again: bool) -> None:
        """A member took this long from planned to training."""
        start_s = round(max(start_s, LEAST_START_S), 3)
        if again:
            self.restarts = after(self.restarts, start_s)
        else:
            self.first_starts = after(self.first_starts, start_s)
        typical = self.restarts or self.first_starts
        assert typical is not None  # one of them was just added to
        if self.start_s is None or abs(typical.typical - self.start_s) > SAME_START * self.start_s:
            self.start_s = typical.typical
            self.edition += 1  # not at each start, because all estimates of its jobs are computed again

    def finished(self, epochs: int, work_1_s: float) -> None:
        if epochs:
            self.epochs.append(epochs)
        if work_1_s > 0.0:
            self.lengths_s.append(work_1_s)
        self.ends += 1
        if self.ends & (self.ends - 1) == 0 or self.ends % 16 == 0:
            self.edition += 1  # not at each end, because all estimates of its pending jobs are computed again

    def frozen(self) -> Family:
        """A copy for estimates, which does not change when the family learns more."""
        return replace(
            self, members={}, course=copy(self.course), lengths_s=copy(self.lengths_s), epochs=copy(self.epochs)
        )

    @property
    def worth_fitting(self) -> bool:
        """Whether it has 1.5 times the reports of the last fit. So a family is fitted some tens of times, not at each
        epoch, because each fit changes the estimates of all its jobs."""
        return self.reports > self.fitted_at + self.fitted_at // 2
