"""How long a job has run, and when it will end, as people see it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from swell.api.eta import SPREAD, eta_s
from swell.api.views import ran_s
from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord
from swell.ports import Remaining, SpeedBook

RUN = RunId(1, 1)
BEGUN: tuple[ev.Event, ...] = (
    ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0),
    ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
    ev.RunPlanned(run=RUN, allocation=Allocation(parts=(Part(node="n1", gpus=(0,)),)), at_s=90.0),
)
STARTED = ev.RunStarted(run=RUN, at_s=100.0)


def of(rate: float) -> SimpleNamespace:
    return SimpleNamespace(rate=lambda *_: rate)


def record(*events: ev.Event) -> JobRecord:
    return replay([*BEGUN, *events]).jobs[1]


def test_a_job_has_run_since_its_run_started() -> None:
    assert ran_s(record(), 130.0) == 0.0
    assert ran_s(record(STARTED), 130.0) == 30.0
    ended = ev.RunEnded(run=RUN, reason=ev.ExitReason.FINISHED, at_s=150.0, exit_code=0)
    assert ran_s(record(STARTED, ended), 999.0) == 50.0


@pytest.mark.parametrize(("now_s", "end_s"), [(100.0, 300.0), (150.0, 300.0), (500.0, 500.0)])
def test_what_has_passed_since_it_was_estimated_is_not_left_any_more(now_s: float, end_s: float) -> None:
    remaining = Remaining(at_speed_1_s=400.0, as_of_s=100.0, sigma=0.0, known=True)
    book = cast(SpeedBook, SimpleNamespace(remaining=lambda _: remaining, speed=lambda *_: of(2.0)))
    assert eta_s(record(STARTED), book, {}, now_s) == [end_s, end_s]


@pytest.mark.parametrize(("rate", "told"), [(0.0, False), (-1.0, False), (1e-3, True)])
def test_a_job_that_gets_nowhere_has_no_end(rate: float, *, told: bool) -> None:
    remaining = Remaining(at_speed_1_s=1.0, as_of_s=100.0, sigma=0.0, known=True)
    book = cast(SpeedBook, SimpleNamespace(remaining=lambda _: remaining, speed=lambda *_: of(rate)))
    assert (eta_s(record(STARTED), book, {}, 100.0) is not None) == told


def test_nor_has_one_that_does_not_run_has_ended_or_of_which_nothing_is_known() -> None:
    def eta(job: JobRecord, *, known: bool = True) -> list[float] | None:
        remaining = Remaining(at_speed_1_s=1.0, as_of_s=100.0, sigma=0.0, known=known)
        book = cast(SpeedBook, SimpleNamespace(remaining=lambda _: remaining, speed=lambda *_: of(1.0)))
        return eta_s(job, book, {}, 100.0)

    ended = ev.RunEnded(run=RUN, reason=ev.ExitReason.FINISHED, at_s=150.0, exit_code=0)
    assert eta(record(STARTED)) is not None
    assert eta(record(STARTED), known=False) is None
    assert eta(record()) is None
    assert eta(record(STARTED, ended)) is None


@pytest.mark.parametrize(("sigma", "margin_s"), [(0.0, 0.0), (0.1, 100.0 * 0.1 * SPREAD), (9.0, 100.0)])
def test_the_less_is_known_the_wider_it_is_told_but_never_before_now(sigma: float, margin_s: float) -> None:
    remaining = Remaining(at_speed_1_s=100.0, as_of_s=100.0, sigma=sigma, known=True)
    book = cast(SpeedBook, SimpleNamespace(remaining=lambda _: remaining, speed=lambda *_: of(1.0)))
    assert eta_s(record(STARTED), book, {}, 100.0) == pytest.approx([200.0 - margin_s, 200.0 + margin_s])
