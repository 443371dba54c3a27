"""What is worth a notice, in words for people."""

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason, StopWhy
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.notices import NoticeKind, notice_of, starving
from swell.core.resources import Allocation, Contact, Node, NodeCondition, Part
from swell.core.state import State

RUN = RunId(1, 1)


def running(**spec: object) -> State:
    state = State()
    job = JobSpec(name="train", command=("x",), user="ana", **spec)  # type: ignore[arg-type]
    apply(state, ev.NodeObserved(node=Node(name="gpu1"), at_s=0.0))
    apply(state, ev.JobSubmitted(job=1, spec=job, at_s=0.0))
    apply(state, ev.RunPlanned(run=RUN, allocation=Allocation(parts=(Part(node="gpu1"),)), at_s=1.0))
    apply(state, ev.RunStarted(run=RUN, at_s=2.0))
    return state


def ended(state: State, reason: ExitReason, message: str = "", code: int | None = None) -> ev.RunEnded:
    event = ev.RunEnded(run=RUN, reason=reason, at_s=9.0, message=message, exit_code=code)
    apply(state, event)
    return event


def test_a_job_that_completed_or_failed_is_told_with_the_cause() -> None:
    state = running()
    done = notice_of(state, ended(state, ExitReason.FINISHED, code=0))
    assert done is not None
    assert (done.kind, done.text, done.user) == (NoticeKind.ENDED, "job 1 (train, ana) completed", "ana")
    state = running()
    failed = notice_of(state, ended(state, ExitReason.USER_ERROR, "ValueError: no such file", 1))
    assert failed is not None
    assert failed.kind is NoticeKind.FAILED
    assert "ValueError: no such file" in failed.text


def test_a_run_that_ended_to_go_on_later_is_no_end() -> None:
    state = running(uses_library=True)
    apply(state, ev.RunStopRequested(run=RUN, why=StopWhy.RESIZING, at_s=3.0))
    assert notice_of(state, ended(state, ExitReason.STOPPED)) is None


@pytest.mark.parametrize(("why", "told"), [(StopWhy.PREEMPTED, True), (StopWhy.RESIZING, False)])
def test_giving_way_to_others_is_told_a_resize_is_not(why: StopWhy, told: bool) -> None:
    state = running(uses_library=True)
    event = ev.RunStopRequested(run=RUN, why=why, at_s=3.0, reason="job 2 has a higher priority")
    apply(state, event)
    found = notice_of(state, event)
    assert (found is not None) == told
    if found is not None:
        assert "job 2 has a higher priority" in found.text


def test_machines_that_fall_silent_or_are_set_aside_are_told() -> None:
    state = running()
    away = ev.NodeContactChanged(node="gpu1", contact=Contact.AWAY, at_s=4.0, why="gpu1 has not answered for 15 s")
    assert getattr(notice_of(state, away), "text", "") == "gpu1 has not answered for 15 s"
    cordoned = ev.NodeConditionChanged(node="gpu1", condition=NodeCondition.CORDONED, at_s=4.0, why="cleaning")
    assert notice_of(state, cordoned) is None
    aside = ev.NodeConditionChanged(node="gpu1", condition=NodeCondition.QUARANTINED, at_s=4.0, why="starts fail")
    assert getattr(notice_of(state, aside), "kind", None) is NoticeKind.MACHINE


def test_a_job_that_starves_is_told_with_how_long() -> None:
    assert "has waited for 2.0 hours" in starving(running().jobs[1], 7200.0, 7200.0).text
