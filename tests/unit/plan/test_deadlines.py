"""What time alone brings about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason, StopWhy
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Contact, Gpu, Node, Part
from swell.core.state import State
from swell.plan.deadlines import AFTER_LAST_EPOCH_S, UNHEARD_S, Due, Force, Patience, due

RUN = RunId(1, 1)
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")


def world(*events: ev.Event, **changes: object) -> State:
    spec = JobSpec(name="j", command=("true",), **changes)  # type: ignore[arg-type]
    first: list[ev.Event] = [
        ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0),
        ev.JobSubmitted(job=1, spec=spec, at_s=0.0),
    ]
    return replay([*first, *events])


PLANNED = ev.RunPlanned(run=RUN, allocation=ALLOCATION, at_s=1.0)
STARTED = ev.RunStarted(run=RUN, at_s=2.0)
BEGAN = ev.TrainingBegan(run=RUN, at_s=3.0, epochs=9)
AGREED = ev.StopAgreed(run=RUN, epoch=1, at_s=101.0)
PATIENCE = Patience(gang_timeout_s=120.0, preempt_wait_s=3600.0, resize_wait_s=3600.0)


def stop(why: StopWhy = StopWhy.PREEMPTED, at_s: float = 100.0) -> ev.RunStopRequested:
    return ev.RunStopRequested(run=RUN, why=why, at_s=at_s)


def test_a_gang_that_is_not_whole_in_time_is_stopped() -> None:
    state = world(PLANNED)
    assert due(state, 100.0, PATIENCE).next_s == 121.0
    [event] = due(state, 121.0, PATIENCE).events
    assert isinstance(event, ev.RunStopRequested)
    assert event.why is StopWhy.NOT_WHOLE


def test_the_time_limit_counts_running_time_over_all_attempts() -> None:
    state = world(PLANNED, STARTED, time_limit_s=60.0)
    replay([stop(at_s=40.0), ev.RunEnded(run=RUN, reason=ExitReason.STOPPED, at_s=42.0)], state)
    second = RunId(1, 2)
    replay([ev.RunPlanned(run=second, allocation=ALLOCATION, at_s=100.0), ev.RunStarted(run=second, at_s=101.0)], state)
    assert due(state, 110.0, PATIENCE).next_s == 121.0  # 40 s were used before
    [event] = due(state, 121.0, PATIENCE).events
    assert isinstance(event, ev.RunStopRequested)
    assert event.why is StopWhy.TIMED_OUT


def test_a_run_without_the_library_gets_sigterm_at_once_and_sigkill_after_its_grace() -> None:
    state = world(PLANNED, STARTED, stop(), grace_s=10.0)
    assert due(state, 100.0, PATIENCE).signals == ((RUN, Force.TERM),)
    assert due(state, 100.0, PATIENCE).next_s == 110.0
    assert due(state, 110.0, PATIENCE).signals == ((RUN, Force.KILL),)


def test_a_preempted_run_is_given_the_time_to_its_next_checkpoint() -> None:
    epoch = ev.EpochEnded(run=RUN, at_s=43.0, epoch=1, epoch_s=40.0)
    state = world(PLANNED, STARTED, BEGAN, epoch, stop(at_s=60.0), grace_s=10.0)
    # 23 s are left of the second epoch: half as much again, and 5 s, are its patience.
    assert due(state, 99.0, PATIENCE).signals == ()
    assert due(state, 99.5, PATIENCE).signals == ((RUN, Force.TERM),)
    assert due(state, 109.5, PATIENCE).signals == ((RUN, Force.KILL),)


def test_a_preempted_run_that_is_late_for_its_checkpoint_is_given_a_whole_interval() -> None:
    epoch = ev.EpochEnded(run=RUN, at_s=43.0, epoch=1, epoch_s=40.0)
    state = world(PLANNED, STARTED, BEGAN, epoch, stop(at_s=100.0), grace_s=10.0)
    assert due(state, 164.0, PATIENCE).signals == ()
    assert due(state, 165.0, PATIENCE).signals == ((RUN, Force.TERM),)


def test_a_report_from_within_a_long_first_epoch_tells_when_it_will_end() -> None:
    within = ev.EpochEnded(run=RUN, at_s=33.0, epoch=0, count=0, epoch_s=1501.0)
    state = world(PLANNED, STARTED, BEGAN, within, stop(at_s=103.0))
    assert due(state, 103.0, PATIENCE).next_s == 103.0 + 1.5 * 1401.0 + 5.0


def test_a_preemption_waits_no_longer_than_its_setting() -> None:
    within = ev.EpochEnded(run=RUN, at_s=33.0, epoch=0, count=0, epoch_s=9000.0)
    state = world(PLANNED, STARTED, BEGAN, within, stop(at_s=103.0))
    assert due(state, 103.0, PATIENCE).next_s == 103.0 + 3600.0


@pytest.mark.parametrize("why", [StopWhy.RESIZING, StopWhy.MIGRATING])
def test_a_resize_or_move_never_kills_however_long_the_epoch_takes(why: StopWhy) -> None:
    state = world(PLANNED, STARTED, BEGAN, stop(why), AGREED)
    week_s = 7 * 86400.0
    assert due(state, week_s, PATIENCE) == Due()


@pytest.mark.parametrize("why", [StopWhy.RESIZING, StopWhy.MIGRATING])
def test_a_resize_or_move_that_finds_no_place_to_stop_is_withdrawn(why: StopWhy) -> None:
    state = world(PLANNED, STARTED, BEGAN, stop(why))
    assert due(state, 3699.0, PATIENCE) == Due(next_s=3700.0)
    [event] = due(state, 3700.0, PATIENCE).events
    assert isinstance(event, ev.RunStopWithdrawn)
    assert event.until_s == 7300.0, "it is left alone for as long again"
    assert "within 60 min" in event.reason
    replay([event], state)
    assert due(state, 3700.0, PATIENCE) == Due()


def test_a_resize_of_a_training_that_agreed_and_never_saves_is_withdrawn() -> None:
    """It saves by a rule of its own: it agrees within a second, and nobody knows when it will save."""
    began = replace(BEGAN, unit="step", saves=ev.Saves.OWN)
    state = world(PLANNED, STARTED, began, stop(StopWhy.RESIZING), AGREED)
    assert due(state, 3699.0, PATIENCE) == Due(next_s=3700.0)
    assert [type(event) for event in due(state, 3700.0, PATIENCE).events] == [ev.RunStopWithdrawn]


def test_a_resize_waits_twice_as_long_as_checkpoints_are_apart_before_it_is_withdrawn() -> None:
    epoch = ev.EpochEnded(run=RUN, at_s=43.0, epoch=1, epoch_s=4000.0)
    state = world(PLANNED, STARTED, BEGAN, epoch, stop(StopWhy.RESIZING))
    assert due(state, 8000.0, PATIENCE) == Due(next_s=8100.0)
    saved = ev.EpochEnded(run=RUN, at_s=8050.0, epoch=2, epoch_s=4000.0)
    replay([saved], state)
    assert due(state, 8100.0, PATIENCE).events, "a rank that never speaks does not put it off with each checkpoint"


def test_nothing_is_withdrawn_while_a_machine_of_the_run_does_not_answer() -> None:
    away = ev.NodeContactChanged(node="n1", contact=Contact.AWAY, at_s=200.0)
    assert due(world(PLANNED, STARTED, BEGAN, stop(StopWhy.RESIZING), away), 9999.0, PATIENCE) == Due()


def test_a_resize_of_a_script_that_never_saves_is_withdrawn_not_killed() -> None:
    state = world(PLANNED, STARTED, stop(StopWhy.RESIZING), checkpoint_dir="/data")
    found = due(state, 3700.0, PATIENCE)
    assert found.signals == ()
    assert [type(event) for event in found.events] == [ev.RunStopWithdrawn]


@pytest.mark.parametrize("why", [StopWhy.RESIZING, StopWhy.PREEMPTED])
def test_a_script_without_the_library_is_stopped_right_after_its_next_checkpoint(why: StopWhy) -> None:
    state = world(PLANNED, STARTED, stop(why), checkpoint_dir="/data", grace_s=10.0)
    assert due(state, 400.0, PATIENCE).signals == ()
    replay([ev.CheckpointSeen(run=RUN, at_s=420.0)], state)
    assert due(state, 420.0, PATIENCE).signals == ((RUN, Force.TERM),)
    assert due(state, 430.0, PATIENCE).signals == ((RUN, Force.KILL),)


def test_a_preempted_script_that_writes_no_checkpoint_is_stopped_in_the_end() -> None:
    state = world(PLANNED, STARTED, stop(), checkpoint_dir="/data")
    assert due(state, 554.9, PATIENCE).signals == ()
    assert due(state, 555.0, PATIENCE).signals == ((RUN, Force.TERM),)


def test_a_checkpoint_before_the_stop_says_when_the_next_one_is_expected() -> None:
    seen = ev.CheckpointSeen(run=RUN, at_s=62.0)  # 60 s after the start
    state = world(PLANNED, STARTED, seen, stop(), checkpoint_dir="/data")
    assert due(state, 100.0, PATIENCE).next_s == 100.0 + 1.5 * 22.0 + 5.0


def test_a_cancelled_run_does_not_wait_for_its_epoch() -> None:
    state = world(PLANNED, STARTED, BEGAN, stop(StopWhy.CANCELLED))
    assert due(state, 100.0, PATIENCE).signals == ((RUN, Force.TERM),)


def test_a_job_that_depends_on_one_that_failed_is_cancelled_with_the_reason() -> None:
    state = world(PLANNED, ev.RunEnded(run=RUN, reason=ExitReason.USER_ERROR, at_s=5.0))
    child = JobSpec(name="child", command=("true",), depends_on=(1,))
    replay([ev.JobSubmitted(job=2, spec=child, at_s=6.0)], state)
    [event] = due(state, 7.0, PATIENCE).events
    assert event == ev.JobCancelled(job=2, at_s=7.0, reason="it depends on job 1, which failed")


def test_a_back_off_says_when_to_look_again() -> None:
    state = world(PLANNED, ev.RunEnded(run=RUN, reason=ExitReason.USER_ERROR, at_s=5.0), retries=1, backoff_s=8.0)
    assert due(state, 6.0, PATIENCE).next_s == 13.0


def test_after_its_last_epoch_a_run_is_not_stopped_for_others_for_a_bounded_time() -> None:
    last = ev.EpochEnded(run=RUN, at_s=90.0, epoch=9, count=9)
    for why in (StopWhy.PREEMPTED, StopWhy.PAUSED):
        state = world(PLANNED, STARTED, BEGAN, last, stop(why), grace_s=1.0)
        assert due(state, 90.0 + AFTER_LAST_EPOCH_S - 1.0, PATIENCE).signals == ()
        assert due(state, 100.0, PATIENCE).next_s == 90.0 + AFTER_LAST_EPOCH_S
        assert due(state, 90.0 + AFTER_LAST_EPOCH_S, PATIENCE).signals == ((RUN, Force.TERM),)
    for why in (StopWhy.RESIZING, StopWhy.MIGRATING):
        state = world(PLANNED, STARTED, BEGAN, last, stop(why), grace_s=1.0)
        assert due(state, 90.0 + 10 * AFTER_LAST_EPOCH_S, PATIENCE).signals == ()


@pytest.mark.parametrize("why", [StopWhy.PREEMPTED, StopWhy.PAUSED, StopWhy.RESIZING])
def test_a_run_with_the_library_that_has_not_reported_yet_may_be_at_its_end(why: StopWhy) -> None:
    """Ten epochs of 20 ms are over before the first report has arrived: what follows them would run again."""
    state = world(PLANNED, STARTED, stop(why), grace_s=1.0, uses_library=True)
    assert due(state, 100.0 + UNHEARD_S - 0.1, PATIENCE).signals == ()
    assert due(state, 100.0 + UNHEARD_S, PATIENCE).signals == ((RUN, Force.TERM),)
    replay([BEGAN, ev.EpochEnded(run=RUN, at_s=101.0, epoch=9, count=9)], state)
    assert due(state, 100.0 + UNHEARD_S, PATIENCE).signals == ()


def test_a_run_that_is_not_up_or_cancelled_is_not_waited_for() -> None:
    for state in (
        world(PLANNED, stop(), uses_library=True),
        world(PLANNED, STARTED, stop(StopWhy.CANCELLED), uses_library=True),
    ):
        assert due(state, 100.0, PATIENCE).signals == ((RUN, Force.TERM),)


def test_after_its_last_epoch_a_run_is_still_cancelled_and_limited_at_once() -> None:
    last = ev.EpochEnded(run=RUN, at_s=90.0, epoch=9, count=9)
    for why in (StopWhy.CANCELLED, StopWhy.TIMED_OUT):
        state = world(PLANNED, STARTED, BEGAN, last, stop(why), grace_s=1.0)
        assert due(state, 100.0, PATIENCE).signals == ((RUN, Force.TERM),)


def test_an_attempt_that_found_all_epochs_done_is_at_its_end_from_its_start() -> None:
    resumed = ev.TrainingBegan(run=RUN, at_s=3.0, epoch=9, epochs=9)
    state = world(PLANNED, STARTED, resumed, stop(at_s=10.0), grace_s=1.0)
    assert due(state, 10.0, PATIENCE).signals == ()
    assert due(state, 10.0, PATIENCE).next_s == 3.0 + AFTER_LAST_EPOCH_S
