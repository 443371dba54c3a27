"""GPU hours by calendar month: whose they are, and which month they fall into."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from swell.core import events as ev
from swell.core.budgets import month_start_s, next_month_s, used_gpu_s
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Part
from swell.core.state import State, copy_of

TWO_GPUS = Allocation(parts=(Part(node="n", gpus=(0, 1)),), gpu_type="gpu")
RUN = RunId(1, 1)


def at(year: int, month: int, day: int, hour: int = 0) -> float:
    return datetime(year, month, day, hour, tzinfo=UTC).timestamp()


def ran(start_s: float, end_s: float | None, team: str = "vision") -> State:
    spec = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=2, max=2), user="ana", team=team)
    events: list[ev.Event] = [
        ev.JobSubmitted(job=1, spec=spec, at_s=start_s),
        ev.RunPlanned(run=RUN, allocation=TWO_GPUS, at_s=start_s),
        ev.RunStarted(run=RUN, at_s=start_s),
    ]
    if end_s is not None:
        events.append(ev.RunEnded(run=RUN, reason=ExitReason.FINISHED, at_s=end_s, exit_code=0))
    return replay(events)


@pytest.mark.parametrize(
    ("moment_s", "begin_s", "end_s"),
    [
        (at(2026, 11, 18, 5), at(2026, 11, 1), at(2026, 12, 1)),
        (at(2026, 12, 31, 23), at(2026, 12, 1), at(2027, 1, 1)),
        (at(2028, 2, 29), at(2028, 2, 1), at(2028, 3, 1)),
        (at(2026, 11, 1), at(2026, 11, 1), at(2026, 12, 1)),
    ],
)
def test_a_month_is_a_calendar_month_in_utc(moment_s: float, begin_s: float, end_s: float) -> None:
    assert (month_start_s(moment_s), next_month_s(moment_s)) == (begin_s, end_s)


def test_an_ended_run_counts_for_its_team() -> None:
    state = ran(at(2026, 11, 2), at(2026, 11, 2, 3))
    assert used_gpu_s(state, ["vision", "speech"], at(2026, 11, 20)) == {"vision": 2 * 3 * 3600.0, "speech": 0.0}


def test_a_run_that_goes_on_counts_up_to_now() -> None:
    state = ran(at(2026, 11, 2), None)
    assert used_gpu_s(state, ["vision"], at(2026, 11, 2, 5)) == {"vision": 2 * 5 * 3600.0}


def test_of_a_run_over_the_end_of_a_month_only_the_new_part_counts() -> None:
    going_on, ended = ran(at(2026, 11, 30, 20), None), ran(at(2026, 11, 30, 20), at(2026, 12, 1, 1))
    assert used_gpu_s(going_on, ["vision"], at(2026, 12, 1, 1)) == {"vision": 2 * 3600.0}
    assert used_gpu_s(ended, ["vision"], at(2026, 12, 9)) == {"vision": 2 * 3600.0}


def test_nothing_is_used_in_a_new_month() -> None:
    assert used_gpu_s(ran(at(2026, 11, 2), at(2026, 11, 3)), ["vision"], at(2026, 12, 1)) == {"vision": 0.0}


def test_a_user_without_a_team_counts_alone() -> None:
    state = ran(at(2026, 11, 2), at(2026, 11, 2, 1), team="")
    assert used_gpu_s(state, ["ana"], at(2026, 11, 3)) == {"ana": 2 * 3600.0}


def test_a_copy_of_the_state_is_charged_alone() -> None:
    state = ran(at(2026, 11, 2), None)
    copied = copy_of(state)
    replay([ev.RunEnded(run=RUN, reason=ExitReason.FINISHED, at_s=at(2026, 11, 3), exit_code=0)], copied)
    assert copied.month_gpu_s
    assert not state.month_gpu_s
