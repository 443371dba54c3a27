"""What a stop costs: the time until the next checkpoint, or, where that is unknown, the work since the last one."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason, Saves
from swell.core.ids import RunId
from swell.core.job import JobSpec, Preemptible
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Part
from swell.core.state import JobRecord, State
from swell.core.unsaved import Unsaved, charged

RUN = RunId(1, 1)
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")


def after(*events: ev.Event, **spec: Any) -> State:
    """A job whose first run is up since 2 s, after these events."""
    fields: dict[str, Any] = {"name": "j", "command": ("x",), "uses_library": True, **spec}
    up: list[ev.Event] = [
        ev.JobSubmitted(job=1, spec=JobSpec(**fields), at_s=0.0),
        ev.RunPlanned(run=RUN, allocation=ALLOCATION, at_s=1.0),
        ev.RunStarted(run=RUN, at_s=2.0),
    ]
    return replay([*up, *events])


def job(*events: ev.Event, **spec: Any) -> JobRecord:
    return after(*events, **spec).jobs[1]


def began(**changes: Any) -> ev.TrainingBegan:
    return ev.TrainingBegan(run=RUN, at_s=10.0, **{"epochs": 10, **changes})


def epoch(at_s: float, number: int = 1, **changes: Any) -> ev.EpochEnded:
    return ev.EpochEnded(run=RUN, at_s=at_s, epoch=number, **{"epoch_s": 1500.0, **changes})


def test_a_stop_waits_for_the_next_checkpoint_if_that_is_known() -> None:
    unsaved = Unsaved(since_s=100.0, every_s=60.0)
    assert [unsaved.stop_cost_s(now_s) for now_s in (100.0, 130.0, 159.0)] == [60.0, 30.0, 1.0]


def test_a_run_that_is_late_is_given_the_interval_again() -> None:
    assert Unsaved(since_s=100.0, every_s=60.0).stop_cost_s(170.0) == 60.0


def test_where_the_next_checkpoint_is_unknown_a_stop_loses_the_work_since_the_last() -> None:
    assert Unsaved(since_s=100.0).stop_cost_s(340.0) == 240.0
    assert Unsaved(since_s=100.0).stop_cost_s(40.0) == 0.0


def test_a_run_with_long_epochs_is_charged_from_its_last_one() -> None:
    assert charged(job(began(), epoch(1510.0)), 30.0) == Unsaved(since_s=1510.0, every_s=1500.0)


def test_never_charged_with_epochs_that_are_shorter_than_a_restart() -> None:
    assert charged(job(began(), epoch(30.0, epoch_s=20.0)), 30.0) is None


def test_charged_from_an_interval_of_one_restart_on() -> None:
    assert charged(job(began(), epoch(40.0, epoch_s=30.0)), 30.0) == Unsaved(since_s=40.0, every_s=30.0)


def test_a_report_that_names_no_rule_of_saving_leaves_the_one_there_is() -> None:
    run = job(began(saves=Saves.OWN), epoch(1510.0)).run
    assert run is not None
    assert run.saves is Saves.OWN


def test_never_charged_if_it_saves_wherever_it_is_asked_to() -> None:
    assert charged(job(began(unit="step")), 30.0) is None
    assert charged(job(began(), epoch(1510.0, saves=Saves.ANYWHERE)), 30.0) is None


def test_a_training_by_steps_with_a_rule_of_its_own_is_charged() -> None:
    steps: list[ev.Event] = [
        began(unit="step"),
        epoch(610.0, 600, count=600, epoch_s=1.0, unsaved=100, saves=Saves.OWN),
    ]
    assert charged(job(*steps), 30.0) == Unsaved(since_s=610.0, every_s=600.0)


@pytest.mark.parametrize("spec", [{"preemptible": Preemptible.NEVER}, {"uses_library": False}])
def test_never_charged_if_it_is_never_stopped(spec: dict[str, Any]) -> None:
    events = () if spec.get("uses_library") is False else (began(),)
    assert charged(job(*events, **spec), 30.0) is None


def test_has_nothing_to_lose_before_it_trains() -> None:
    assert charged(job(), 30.0) is None


def test_the_next_run_is_expected_to_save_as_often_as_the_last() -> None:
    stopped = ev.RunStopRequested(run=RUN, why=ev.StopWhy.PREEMPTED, at_s=1600.0)
    left = ev.RunEnded(run=RUN, reason=ExitReason.STOPPED, at_s=3010.0, exit_code=85)
    again = ev.RunPlanned(run=RunId(1, 2), allocation=ALLOCATION, at_s=3020.0)
    run = job(began(), epoch(1510.0), stopped, left, again).run
    assert run is not None
    assert run.boundary_every_s == 1500.0


def test_waiting_for_a_checkpoint_is_no_restart_cost() -> None:
    """It trained all the while; what the restart took is from its last checkpoint on."""
    asked = ev.RunStopRequested(run=RUN, why=ev.StopWhy.RESIZING, at_s=1000.0)
    agreed = ev.StopAgreed(run=RUN, epoch=3, step=1, at_s=1000.0)
    saved = ev.CheckpointSeen(run=RUN, at_s=1810.0)
    left = ev.RunEnded(run=RUN, reason=ExitReason.STOPPED, at_s=1811.0, exit_code=85)
    second = RunId(1, 2)
    again: list[ev.Event] = [
        ev.RunPlanned(run=second, allocation=ALLOCATION, at_s=1811.0),
        ev.RunStarted(run=second, at_s=1812.0),
    ]
    resumed = ev.TrainingBegan(run=second, at_s=1831.0, epoch=3, epochs=10, saves=Saves.OWN)
    found = job(began(saves=Saves.OWN), asked, agreed, saved, left, *again, resumed)
    assert found.restart_cost_s == 20.0 + 1.0
