"""From what executors see to events: preempted, finished and failed are never confused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason, StopWhy
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.observations import NodeGone, NodeSeen, RunGone, RunProgress, RunUp
from swell.core.resources import Allocation, Gpu, GpuHealth, Node, NodeCondition, Part
from swell.core.state import JobState, State
from swell.daemon.watch import events_seen
from swell.plan.deadlines import Force

RUN = RunId(1, 1)
NODE = Node(name="n1", gpus=(Gpu(index=0),))


def running(stop: StopWhy | None = None, *, library: bool = True) -> State:
    allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")
    spec = JobSpec(name="j", command=("true",), uses_library=library)
    events: list[ev.Event] = [
        ev.NodeObserved(node=NODE, at_s=0.0),
        ev.JobSubmitted(job=1, spec=spec, at_s=0.0),
        ev.RunPlanned(run=RUN, allocation=allocation, at_s=1.0),
        ev.RunStarted(run=RUN, at_s=2.0),
    ]
    if stop is not None:
        events.append(ev.RunStopRequested(run=RUN, why=stop, at_s=3.0))
    return replay(events)


def after(state: State, reason: ExitReason, pushed: Force = Force.ASK, code: int | None = None) -> JobState:
    seen = RunGone(run=RUN, reason=reason, at_s=9.0, exit_code=code)
    return replay(events_seen(state, seen, signalled=pushed is not Force.ASK), state).jobs[1].state


@pytest.mark.parametrize(
    ("stop", "library", "reason", "pushed", "becomes"),
    [
        (None, True, ExitReason.FINISHED, Force.ASK, JobState.COMPLETED),
        (None, True, ExitReason.STOPPED, Force.ASK, JobState.QUEUED),  # left by itself: it is run again
        (None, True, ExitReason.USER_ERROR, Force.ASK, JobState.FAILED),
        (None, True, ExitReason.KILLED, Force.ASK, JobState.QUEUED),  # from its checkpoint
        (None, False, ExitReason.KILLED, Force.ASK, JobState.FAILED),
        (StopWhy.PREEMPTED, True, ExitReason.STOPPED, Force.ASK, JobState.QUEUED),
        (StopWhy.PREEMPTED, True, ExitReason.FINISHED, Force.TERM, JobState.COMPLETED),  # the library says 0 only then
        (StopWhy.PREEMPTED, False, ExitReason.FINISHED, Force.TERM, JobState.QUEUED),
        (StopWhy.PREEMPTED, False, ExitReason.FINISHED, Force.ASK, JobState.COMPLETED),  # before any signal
        (StopWhy.RESIZING, True, ExitReason.USER_ERROR, Force.TERM, JobState.QUEUED),
        (StopWhy.RESIZING, True, ExitReason.KILLED, Force.KILL, JobState.QUEUED),
        (StopWhy.CANCELLED, True, ExitReason.FINISHED, Force.TERM, JobState.CANCELLED),
        (StopWhy.CANCELLED, True, ExitReason.USER_ERROR, Force.TERM, JobState.CANCELLED),
        (StopWhy.TIMED_OUT, True, ExitReason.STOPPED, Force.TERM, JobState.FAILED),
    ],
)
def test_how_a_run_ended(
    stop: StopWhy | None, library: bool, reason: ExitReason, pushed: Force, becomes: JobState
) -> None:
    assert after(running(stop, library=library), reason, pushed) is becomes


def test_a_training_that_finished_while_it_was_told_to_stop_has_finished() -> None:
    """Executors call exit code 0 after SIGTERM a stop; the library has a code of its own for that."""
    assert after(running(StopWhy.PREEMPTED), ExitReason.STOPPED, Force.TERM, code=0) is JobState.COMPLETED
    assert after(running(StopWhy.PREEMPTED), ExitReason.STOPPED, Force.TERM, code=85) is JobState.QUEUED
    assert after(running(StopWhy.CANCELLED), ExitReason.STOPPED, Force.TERM, code=0) is JobState.CANCELLED


def test_what_is_known_already_brings_no_event() -> None:
    state = running()
    assert events_seen(state, RunUp(run=RUN, at_s=5.0), signalled=False) == []
    assert events_seen(state, NodeSeen(node=NODE, at_s=5.0), signalled=False) == []
    assert events_seen(state, RunGone(run=RunId(1, 7), reason=ExitReason.FINISHED, at_s=5.0), signalled=False) == []
    assert events_seen(state, RunGone(run=RunId(9, 1), reason=ExitReason.FINISHED, at_s=5.0), signalled=False) == []


def test_a_cordoned_node_that_reports_in_stays_cordoned() -> None:
    state = running()
    replay([ev.NodeConditionChanged(node="n1", condition=NodeCondition.CORDONED, at_s=4.0)], state)
    assert events_seen(state, NodeSeen(node=NODE, at_s=5.0), signalled=False) == []
    bigger = Node(name="n1", gpus=(Gpu(index=0), Gpu(index=1)))
    replay(events_seen(state, NodeSeen(node=bigger, at_s=6.0), signalled=False), state)
    assert (state.nodes["n1"].condition, len(state.nodes["n1"].gpus)) == (NodeCondition.CORDONED, 2)


def progress(epochs: int, total: int = 9) -> RunProgress:
    return RunProgress(run=RUN, resumed=0, epochs=epochs, total=total, began_s=3.0, at_s=7.0)


def test_epochs_that_nobody_heard_of_are_found_in_the_run_s_own_record() -> None:
    state = running()
    replay(events_seen(state, progress(4), signalled=False), state)
    job = state.jobs[1]
    assert (job.epochs_done, job.epochs_total, job.uses_library) == (4, 9, True)
    assert job.run is not None
    assert (job.run.began_s, job.run.last_epoch_s) == (3.0, 7.0)
    assert events_seen(state, progress(4), signalled=False) == []
    assert events_seen(state, progress(3), signalled=False) == [], "a record never sets a job back"


def test_a_run_that_only_began_has_no_epoch_yet() -> None:
    state = running()
    [began] = events_seen(state, progress(0), signalled=False)
    assert began == ev.TrainingBegan(run=RUN, at_s=3.0, epoch=0, epochs=9)


def test_a_record_of_steps_is_one_of_steps() -> None:
    state = running()
    replay(events_seen(state, replace(progress(40, 900), unit="step"), signalled=False), state)
    job = state.jobs[1]
    assert (job.unit, job.epochs_done, job.epochs_total) == ("step", 40, 900)


def test_the_record_of_an_old_attempt_changes_nothing() -> None:
    old = RunProgress(run=RunId(1, 7), resumed=0, epochs=4, total=9, began_s=3.0, at_s=7.0)
    assert events_seen(running(), old, signalled=False) == []


def test_a_run_that_resumed_from_an_older_checkpoint_sets_the_job_back_once() -> None:
    state = running()
    replay([ev.TrainingBegan(run=RUN, at_s=3.0, epochs=9), ev.EpochEnded(run=RUN, at_s=4.0, epoch=6, count=6)], state)
    replay([ev.RunEnded(run=RUN, reason=ExitReason.SHIM_LOST, at_s=5.0)], state)
    again = RunId(1, 2)
    allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")
    replay([ev.RunPlanned(run=again, allocation=allocation, at_s=6.0), ev.RunStarted(run=again, at_s=7.0)], state)
    seen = RunProgress(run=again, resumed=5, epochs=5, total=9, began_s=8.0, at_s=8.0)
    replay(events_seen(state, seen, signalled=False), state)
    assert state.jobs[1].epochs_done == 5


@pytest.mark.parametrize(
    ("before_mib", "now_mib", "told"),
    [
        (0, 256, True),
        (2048, 2304, True),
        (2304, 2048, False),
        (2304, 2303, False),
        (2304, 1280, True),
        (256, 0, True),
        (2048, 2048, False),
    ],
)
def test_measured_use_that_only_falls_a_little_is_no_event(before_mib: int, now_mib: int, told: bool) -> None:
    before, now = (replace(NODE, gpus=(Gpu(index=0, others_memory_mib=mib),)) for mib in (before_mib, now_mib))
    state = replay([ev.NodeObserved(node=before, at_s=0.0)])
    assert bool(events_seen(state, NodeSeen(node=now, at_s=1.0), signalled=False)) is told


def test_a_gpu_that_is_quarantined_is_told_whatever_its_measured_use_does() -> None:
    before = replace(NODE, gpus=(Gpu(index=0, others_memory_mib=512),))
    now = replace(NODE, gpus=(Gpu(index=0, others_memory_mib=256, health=GpuHealth.QUARANTINED),))
    state = replay([ev.NodeObserved(node=before, at_s=0.0)])
    assert events_seen(state, NodeSeen(node=now, at_s=1.0), signalled=False)


def test_a_machine_that_left_its_cluster_takes_its_runs_along_and_they_are_tried_again() -> None:
    state = running()
    replay(events_seen(state, NodeGone(node="n1", at_s=9.0), signalled=False), state)
    assert "n1" not in state.nodes
    assert state.jobs[1].state is JobState.QUEUED
    assert state.jobs[1].failures == 0


def test_a_machine_that_nobody_knows_leaves_without_a_trace() -> None:
    assert events_seen(running(), NodeGone(node="n9", at_s=9.0), signalled=False) == []


def test_a_rise_on_one_gpu_forgets_nothing_of_the_others() -> None:
    """Else two that go up and down would make news of each other for as long as they do."""
    known = Node(name="n1", gpus=tuple(Gpu(index=i, others=True, others_memory_mib=4096) for i in range(2)))
    state = replay([ev.NodeObserved(node=known, at_s=0.0)])
    rose = replace(
        known, gpus=(replace(known.gpus[0], others_memory_mib=4352), replace(known.gpus[1], others_memory_mib=3840))
    )
    [event] = events_seen(state, NodeSeen(node=rose, at_s=1.0), signalled=False)
    assert isinstance(event, ev.NodeObserved)
    assert [gpu.others_memory_mib for gpu in event.node.gpus] == [4352, 4096]
    replay([event], state)
    back = replace(known, gpus=tuple(replace(gpu, others_memory_mib=4096) for gpu in known.gpus))
    assert events_seen(state, NodeSeen(node=back, at_s=2.0), signalled=False) == []


def test_a_run_that_had_finished_before_it_was_to_stop_has_finished() -> None:
    """Its machine was silent meanwhile: nobody knew, and the signal may not even have arrived."""
    state = running(StopWhy.NOT_WHOLE, library=False)
    gone = RunGone(run=RUN, reason=ExitReason.FINISHED, at_s=1.5, exit_code=0)
    [event] = events_seen(state, gone, signalled=True)
    assert isinstance(event, ev.RunEnded)
    assert event.reason is ExitReason.FINISHED
