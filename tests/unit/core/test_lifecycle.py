"""The law of a job's life, pair by pair."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from swell.core import events as ev
from swell.core.errors import InvalidTransition
from swell.core.events import ExitReason, StopWhy
from swell.core.exits import MAX_KILLS, MAX_LOST_RUNS
from swell.core.ids import RunId
from swell.core.invariants import violations
from swell.core.job import GpuRequest, JobSpec, RestartPolicy
from swell.core.lifecycle import NODE_FULL_RETRY_S, apply, replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import ENDED, JobState, State, last_given, was_given
from swell.core.transitions import TRANSITIONS, Trigger

NODE = Node(name="n1", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8, memory_mib=1000)
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(0, 1)),), gpu_type="gpu")


def spec(**changes: object) -> JobSpec:
    base: dict[str, object] = {"name": "train", "command": ("true",), "gpus": GpuRequest(min=1, max=4)}
    return JobSpec(**{**base, **changes})  # type: ignore[arg-type]


def submitted(at_s: float = 0.0, **changes: object) -> State:
    return replay([ev.NodeObserved(node=NODE, at_s=0.0), ev.JobSubmitted(job=1, spec=spec(**changes), at_s=at_s)])


def planned(attempt: int = 1, at_s: float = 1.0, allocation: Allocation = ALLOCATION) -> ev.RunPlanned:
    return ev.RunPlanned(run=RunId(1, attempt), allocation=allocation, at_s=at_s)


def ended(reason: ExitReason, attempt: int = 1, at_s: float = 10.0) -> ev.RunEnded:
    return ev.RunEnded(run=RunId(1, attempt), reason=reason, at_s=at_s)


RESIZING: list[ev.Event] = [
    ev.RunStarted(run=RunId(1, 1), at_s=2.0),
    ev.TrainingBegan(run=RunId(1, 1), at_s=2.5),
    ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.RESIZING, at_s=3.0, reason="1 -> 2 GPUs"),
]
WITHDRAWN = ev.RunStopWithdrawn(run=RunId(1, 1), at_s=9.0, reason="no checkpoint came", until_s=99.0)


def in_state(target: JobState, **changes: Any) -> State:
    """A state whose job 1 is in `target`."""
    state = submitted(**changes)
    run = RunId(1, 1)
    paths: dict[JobState, list[ev.Event]] = {
        JobState.QUEUED: [],
        JobState.STARTING: [planned()],
        JobState.RUNNING: [planned(), ev.RunStarted(run=run, at_s=2.0)],
        JobState.STOPPING: [planned(), ev.RunStopRequested(run=run, why=StopWhy.PREEMPTED, at_s=3.0)],
        JobState.COMPLETED: [planned(), ended(ExitReason.FINISHED)],
        JobState.FAILED: [planned(), ended(ExitReason.USER_ERROR)],
        JobState.CANCELLED: [ev.JobCancelled(job=1, at_s=1.0)],
    }
    if target is JobState.LOST:
        state = submitted(restart=RestartPolicy.NEVER)
        paths[JobState.LOST] = [planned(), ended(ExitReason.NODE_LOST)]
    return replay(paths[target], state)


EVENT_FOR: dict[Trigger, list[ev.Event]] = {
    Trigger.START: [ev.RunStarted(run=RunId(1, 1), at_s=5.0)],
    Trigger.REPORT: [
        ev.EpochEnded(run=RunId(1, 1), at_s=5.0, epoch=1),
        ev.TrainingBegan(run=RunId(1, 1), at_s=5.0),
        ev.StopAgreed(run=RunId(1, 1), epoch=2, at_s=5.0),
        ev.RunResized(run=RunId(1, 1), allocation=ALLOCATION, at_s=5.0),
    ],
    Trigger.STOP: [ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.RESIZING, at_s=5.0)],
    Trigger.FINISH: [ended(ExitReason.FINISHED)],
    Trigger.REQUEUE: [ended(ExitReason.STOPPED), ended(ExitReason.SHIM_LOST), ended(ExitReason.NODE_FULL)],
    Trigger.FAIL: [ended(ExitReason.USER_ERROR), ended(ExitReason.OUT_OF_MEMORY), ended(ExitReason.START_FAILED)],
    Trigger.FIND: [ev.ResultStands(run=RunId(1, 1), at_s=5.0)],
    Trigger.EDIT: [
        ev.JobPaused(job=1, at_s=5.0),
        ev.JobResumed(job=1, at_s=5.0),
        ev.PriorityChanged(job=1, priority=5, at_s=5.0),
        ev.JobUpdated(job=1, gpus=GpuRequest(min=2, max=2), time_limit_s=60.0, at_s=5.0),
    ],
    Trigger.AGAIN: [ev.JobRequeued(job=1, at_s=5.0)],
    Trigger.CARRY: [ev.CheckpointCopied(job=1, at_s=5.0, epoch=2), ev.JobRewound(job=1, epoch=1, at_s=5.0)],
    Trigger.COLLECT: [ev.OutputsCopied(job=1, at_s=5.0, copied=ev.CopiedOutputs(into="/there", files=1))],
}


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(JobState, EVENT_FOR)))
def test_every_pair_of_state_and_trigger_does_what_the_table_says(state: JobState, trigger: Trigger) -> None:
    for event in EVENT_FOR[trigger]:
        world = in_state(state)
        target = TRANSITIONS.get((state, trigger))
        about_a_run = hasattr(event, "run")
        if target is None and not about_a_run:
            with pytest.raises(InvalidTransition):
                apply(world, event)
            continue
        apply(world, event)
        # A report of a run that is not the current one is recorded and changes nothing.
        assert world.jobs[1].state is (state if target is None else target)
        assert violations(world) == []


def test_a_result_that_is_found_later_completes_the_job_whatever_becomes_of_the_newer_attempt() -> None:
    lost: list[ev.Event] = [planned(), ended(ExitReason.NODE_LOST, at_s=5.0)]
    found = ev.ResultStands(run=RunId(1, 1), at_s=7.0)
    assert replay([*lost, found], submitted()).jobs[1].state is JobState.COMPLETED
    again: list[ev.Event] = [*lost, planned(2, at_s=6.0), found]
    world = replay(again, submitted())
    assert world.jobs[1].state is JobState.STARTING
    stop = ev.RunStopRequested(run=RunId(1, 2), why=StopWhy.CANCELLED, at_s=8.0)
    world = replay([*again, stop, ended(ExitReason.STOPPED, 2)], submitted())
    assert world.jobs[1].state is JobState.COMPLETED


def test_a_withdrawn_stop_leaves_the_run_as_it_was_and_is_remembered_until_the_next_checkpoint() -> None:
    world = replay([planned(), *RESIZING], submitted())
    apply(world, WITHDRAWN)
    job = world.jobs[1]
    assert (job.state, job.run and job.run.stop, job.resizes) == (JobState.RUNNING, None, 0)
    assert job.run
    assert job.run.withdrawn
    assert (job.run.withdrawn.change, job.run.withdrawn.until_s) == ("1 -> 2 GPUs", 99.0)
    apply(world, ev.EpochEnded(run=RunId(1, 1), at_s=20.0, epoch=1))
    assert (run := world.jobs[1].run)
    assert run.withdrawn is None


@pytest.mark.parametrize(
    "then",
    [
        ev.StopAgreed(run=RunId(1, 1), epoch=2, at_s=4.0),
        ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.CANCELLED, at_s=4.0),
        ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.PREEMPTED, at_s=4.0),
    ],
)
def test_never_is_a_stop_withdrawn_that_ranks_may_have_left_at_or_that_others_need(then: ev.Event) -> None:
    world = replay([planned(), *RESIZING, then], submitted())
    with pytest.raises(InvalidTransition, match="withdrawn"):
        apply(world, WITHDRAWN)


@pytest.mark.parametrize(
    "life",
    [
        RESIZING[:1] + RESIZING[2:],  # it had not begun when it was asked: it was sent SIGTERM
        [
            RESIZING[0],
            RESIZING[2],
            ev.TrainingBegan(run=RunId(1, 1), at_s=4.0),
        ],  # and beginning later does not undo that
    ],
)
def test_never_is_a_stop_withdrawn_that_a_signal_was_sent_for(life: list[ev.Event]) -> None:
    world = replay([planned(), *life], submitted())
    with pytest.raises(InvalidTransition, match="withdrawn"):
        apply(world, WITHDRAWN)


def test_never_is_the_stop_of_a_script_withdrawn_that_has_just_saved() -> None:
    asked = [RESIZING[0], RESIZING[2]]
    apply(replay([planned(), *asked], submitted(checkpoint_dir="/data")), WITHDRAWN)
    saved = replay([planned(), *asked, ev.CheckpointSeen(run=RunId(1, 1), at_s=4.0)], submitted(checkpoint_dir="/data"))
    with pytest.raises(InvalidTransition, match="withdrawn"):
        apply(saved, WITHDRAWN)


@pytest.mark.parametrize("state", [s for s in JobState if s is not JobState.QUEUED])
def test_only_a_queued_job_can_be_planned(state: JobState) -> None:
    world = in_state(state)
    with pytest.raises(InvalidTransition):
        apply(world, planned(attempt=world.jobs[1].attempts + 1))


def test_an_attempt_is_never_planned_twice() -> None:
    world = replay([planned(), ended(ExitReason.STOPPED)], submitted())
    with pytest.raises(InvalidTransition, match="attempts"):
        apply(world, planned(attempt=1))


def test_a_job_id_is_never_used_twice() -> None:
    world = in_state(JobState.COMPLETED)
    apply(world, ev.JobRemoved(job=1, at_s=20.0))
    with pytest.raises(InvalidTransition, match="used before"):
        apply(world, ev.JobSubmitted(job=1, spec=spec(), at_s=21.0))


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_can_be_removed_and_no_other(state: JobState) -> None:
    world = in_state(state)
    apply(world, ev.JobRemoved(job=1, at_s=20.0))
    assert world.jobs == {}
    with pytest.raises(InvalidTransition):
        apply(in_state(JobState.QUEUED), ev.JobRemoved(job=1, at_s=20.0))


def test_a_job_that_only_the_tables_still_have_can_be_removed() -> None:
    world = in_state(JobState.COMPLETED)
    del world.jobs[1], world.ended[1]  # as KEEP_ENDED does
    apply(world, ev.JobRemoved(job=1, at_s=20.0))
    with pytest.raises(InvalidTransition, match="not known"):
        apply(world, ev.JobRemoved(job=2, at_s=20.0))


def test_preemption_and_resize_never_count_as_failures() -> None:
    world = submitted()
    for attempt, why in enumerate((StopWhy.PREEMPTED, StopWhy.RESIZING, StopWhy.MIGRATING), start=1):
        run = RunId(1, attempt)
        replay(
            [
                planned(attempt, at_s=10.0 * attempt),
                ev.RunStopRequested(run=run, why=why, at_s=10.0 * attempt + 1),
                ended(ExitReason.STOPPED, attempt, at_s=10.0 * attempt + 2),
            ],
            world,
        )
    job = world.jobs[1]
    assert (job.state, job.failures, job.preemptions, job.resizes) == (JobState.QUEUED, 0, 1, 1)


def test_a_run_that_finishes_before_it_is_stopped_was_not_stopped() -> None:
    for why in (StopWhy.PREEMPTED, StopWhy.RESIZING):
        requested = ev.RunStopRequested(run=RunId(1, 1), why=why, at_s=11.0)
        world = replay([planned(1), requested, ended(ExitReason.FINISHED, 1, at_s=12.0)], submitted())
        job = world.jobs[1]
        assert (job.state, job.preemptions, job.resizes) == (JobState.COMPLETED, 0, 0)


def test_a_failed_run_is_tried_again_with_a_back_off_that_doubles() -> None:
    world = submitted(retries=2, backoff_s=5.0)
    replay([planned(1), ended(ExitReason.USER_ERROR, 1, at_s=10.0)], world)
    assert (world.jobs[1].state, world.jobs[1].not_before_s) == (JobState.QUEUED, 15.0)
    replay([planned(2, at_s=15.0), ended(ExitReason.USER_ERROR, 2, at_s=20.0)], world)
    assert world.jobs[1].not_before_s == 30.0
    replay([planned(3, at_s=30.0), ended(ExitReason.USER_ERROR, 3, at_s=31.0)], world)
    assert (world.jobs[1].state, world.jobs[1].failures) == (JobState.FAILED, 3)


def test_a_node_without_room_is_never_the_jobs_failure() -> None:
    world = submitted(retries=0, restart=RestartPolicy.NEVER)
    for attempt in range(1, 9):
        replay([planned(attempt), ended(ExitReason.NODE_FULL, attempt)], world)
        job = world.jobs[1]
        assert (job.state, job.failures, job.lost_runs) == (JobState.QUEUED, 0, 0)
        assert job.not_before_s == 10.0 + NODE_FULL_RETRY_S


def test_a_job_that_takes_its_machines_down_is_given_up_in_the_end() -> None:
    world = submitted()
    for attempt in range(1, MAX_LOST_RUNS + 2):
        assert world.jobs[1].state is JobState.QUEUED
        replay([planned(attempt), ended(ExitReason.SHIM_LOST, attempt)], world)
    assert world.jobs[1].state is JobState.LOST


def test_a_cancelled_run_that_dies_of_it_is_cancelled_not_failed() -> None:
    world = replay([planned(), ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.CANCELLED, at_s=3.0)], submitted())
    apply(world, ended(ExitReason.USER_ERROR))
    assert world.jobs[1].state is JobState.CANCELLED


def test_a_run_over_its_time_limit_fails_and_is_not_tried_again() -> None:
    world = submitted(retries=5)
    replay([planned(), ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.TIMED_OUT, at_s=3.0)], world)
    apply(world, ended(ExitReason.STOPPED))
    assert world.jobs[1].state is JobState.FAILED


def test_service_waiting_and_running_time_are_added_up() -> None:
    world = submitted(at_s=0.0)
    replay(
        [
            planned(1, at_s=5.0),
            ev.RunStarted(run=RunId(1, 1), at_s=6.0),
            ended(ExitReason.STOPPED, 1, at_s=16.0),
            planned(2, at_s=20.0),
        ],
        world,
    )
    job = world.jobs[1]
    assert (job.waited_s, job.ran_s, job.gpu_s) == (9.0, 10.0, 20.0)


def test_a_pause_never_counts_as_waiting() -> None:
    world = submitted()
    replay([ev.JobPaused(job=1, at_s=10.0), ev.JobPaused(job=1, at_s=20.0), ev.JobResumed(job=1, at_s=100.0)], world)
    assert (world.jobs[1].waited_s, world.jobs[1].queued_since_s) == (10.0, 100.0)
    replay([ev.JobResumed(job=1, at_s=103.0), planned(at_s=105.0)], world)
    assert world.jobs[1].waited_s == 15.0
    replay([ev.JobPaused(job=1, at_s=106.0), ended(ExitReason.STOPPED, at_s=110.0)], world)
    replay([ev.JobResumed(job=1, at_s=200.0), ev.JobCancelled(job=1, at_s=201.0)], world)
    assert world.jobs[1].waited_s == 16.0


@pytest.mark.parametrize(
    "heard",
    [[ev.RunStarted(run=RunId(1, 1), at_s=2.0)], [ev.TrainingBegan(run=RunId(1, 1), at_s=2.0)], []],
    ids=["its start", "only its library", "nothing"],
)
def test_a_run_that_was_lost_with_its_machine_may_have_saved_there_whatever_was_heard_of_it(
    heard: list[ev.Event],
) -> None:
    """The link may have been cut while it was launched."""
    state = submitted(uses_library=True)
    for event in (planned(), *heard, ended(ExitReason.NODE_LOST)):
        apply(state, event)
    assert state.jobs[1].files_on == ALLOCATION.nodes[0]


def test_files_that_are_known_are_not_forgotten_for_a_run_of_which_nothing_was_heard() -> None:
    elsewhere = Allocation(parts=(Part(node="b", gpus=(0,)),))
    state = submitted(uses_library=True)
    for event in (planned(), ev.RunStarted(run=RunId(1, 1), at_s=2.0), ended(ExitReason.NODE_LOST)):
        apply(state, event)
    for event in (planned(2, 11.0, elsewhere), ended(ExitReason.NODE_LOST, 2, 20.0)):
        apply(state, event)
    assert state.jobs[1].files_on == ALLOCATION.nodes[0]


def test_restart_cost_is_measured_from_the_last_whole_epoch_to_the_first_of_the_next_run() -> None:
    world = submitted()
    replay(
        [
            planned(1, at_s=0.0),
            ev.RunStarted(run=RunId(1, 1), at_s=1.0),
            ev.TrainingBegan(run=RunId(1, 1), at_s=2.0, epoch=0, epochs=9),
            ev.EpochEnded(run=RunId(1, 1), at_s=10.0, epoch=1),
            ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.RESIZING, at_s=11.0),
            ended(ExitReason.STOPPED, 1, at_s=12.0),  # 2 s after the epoch
            planned(2, at_s=50.0),  # the wait between is not a cost of the restart
            ev.TrainingBegan(run=RunId(1, 2), at_s=53.0, epoch=1),  # 3 s to start
        ],
        world,
    )
    assert world.jobs[1].restart_cost_s == pytest.approx(5.0)
    assert world.jobs[1].epochs_total == 9


def test_reports_of_an_old_attempt_never_change_anything() -> None:
    world = replay([planned(1), ended(ExitReason.STOPPED, 1), planned(2, at_s=11.0)], submitted())
    before = world.jobs[1]
    for event in (
        ev.EpochEnded(run=RunId(1, 1), at_s=12.0, epoch=7),
        ended(ExitReason.FINISHED, 1, at_s=12.0),
        ev.RunStarted(run=RunId(1, 1), at_s=12.0),
        ev.EpochEnded(run=RunId(99, 1), at_s=12.0, epoch=7),
    ):
        apply(world, event)
    assert world.jobs[1] is before


def test_a_move_to_other_nodes_is_counted() -> None:
    elsewhere = Allocation(parts=(Part(node="n2", gpus=(0,)),), gpu_type="gpu")
    world = replay([planned(1), ended(ExitReason.STOPPED, 1), planned(2, allocation=elsewhere)], submitted())
    assert world.jobs[1].migrations == 1


def test_never_gives_an_id_that_was_skipped() -> None:
    """Another database gave them, and nodes keep files under them."""
    skipped = ev.IdsSkipped(through=4, at_s=1.0)
    state = replay([skipped])
    assert (state.last_job, last_given(state)) == (4, 0)
    state = replay([ev.IdsSkipped(through=6, at_s=1.0), ev.IdsSkipped(through=9, at_s=2.0), skipped], submitted())
    assert (state.last_job, last_given(state)) == (9, 1)
    assert [job for job in range(12) if was_given(state, job)] == [1]
    with pytest.raises(InvalidTransition, match="job id 9"):
        apply(state, ev.JobSubmitted(job=9, spec=spec(), at_s=3.0))
    apply(state, ev.JobSubmitted(job=10, spec=spec(), at_s=3.0))
    assert (state.last_job, last_given(state)) == (10, 10)
    assert [job for job in range(12) if was_given(state, job)] == [1, 10]


def running(**changes: Any) -> State:
    began = ev.TrainingBegan(run=RunId(1, 1), at_s=5.0, epoch=0, epochs=10)
    return replay([planned(), ev.RunStarted(run=RunId(1, 1), at_s=2.0), began], submitted(**changes))


@pytest.mark.parametrize(
    ("end", "lost_s"),
    [
        (ev.RunEnded(run=RunId(1, 1), reason=ExitReason.STOPPED, at_s=70.0, exit_code=85), 0.0),
        (ev.RunEnded(run=RunId(1, 1), reason=ExitReason.FINISHED, at_s=70.0, exit_code=0), 0.0),
        (ev.RunEnded(run=RunId(1, 1), reason=ExitReason.STOPPED, at_s=70.0, exit_code=-9), 30.0),
        (ev.RunEnded(run=RunId(1, 1), reason=ExitReason.NODE_LOST, at_s=70.0), 30.0),
        (ev.RunEnded(run=RunId(1, 1), reason=ExitReason.USER_ERROR, at_s=70.0, exit_code=1), 30.0),
    ],
)
def test_an_end_costs_the_work_since_the_last_checkpoint(end: ev.RunEnded, lost_s: float) -> None:
    state = replay([ev.EpochEnded(run=RunId(1, 1), at_s=40.0, epoch=1, epoch_s=35.0), end], running(retries=1))
    job = state.jobs[1]
    assert job.lost_s == lost_s
    assert job.run is not None
    assert job.run.lost_s == lost_s


def test_a_run_that_never_saved_loses_all_it_trained() -> None:
    state = replay([ended(ExitReason.NODE_LOST, at_s=70.0)], running())
    assert state.jobs[1].lost_s == 65.0


def test_work_that_was_lost_adds_up_over_runs() -> None:
    state = replay([ended(ExitReason.NODE_LOST, at_s=70.0), planned(attempt=2, at_s=80.0)], running())
    second = RunId(1, 2)
    began = ev.TrainingBegan(run=second, at_s=84.0, epoch=0, epochs=10)
    replay([ev.RunStarted(run=second, at_s=81.0), began, ended(ExitReason.SHIM_LOST, attempt=2, at_s=90.0)], state)
    assert state.jobs[1].lost_s == 65.0 + 6.0


def test_a_run_that_ends_before_it_trains_loses_no_work() -> None:
    """It was importing its framework: that is a restart's cost."""
    state = replay([ended(ExitReason.NODE_LOST, at_s=70.0), planned(attempt=2, at_s=80.0)], running())
    second = RunId(1, 2)
    replay([ev.RunStarted(run=second, at_s=81.0), ended(ExitReason.SHIM_LOST, attempt=2, at_s=90.0)], state)
    assert state.jobs[1].lost_s == 65.0


def test_steps_count_as_done_before_they_are_saved_and_are_given_back_when_they_are_lost() -> None:
    run = RunId(1, 1)
    state = replay([planned(), ev.RunStarted(run=run, at_s=2.0)], submitted())
    replay([ev.TrainingBegan(run=run, at_s=5.0, epochs=1000, unit="step")], state)
    replay([ev.EpochEnded(run=run, at_s=25.0, epoch=120, count=120, epoch_s=0.1, unsaved=20)], state)
    job = state.jobs[1]
    assert job.run is not None
    assert (job.unit, job.epochs_done, job.epochs_saved, job.run.saved_s) == ("step", 120, 100, 25.0)
    replay([ev.EpochEnded(run=run, at_s=35.0, epoch=180, count=60, epoch_s=0.1, unsaved=80)], state)
    job = state.jobs[1]
    assert job.run is not None
    assert (job.epochs_done, job.epochs_saved, job.run.saved_s, job.run.boundary_every_s) == (180, 100, 25.0, 20.0)
    second = RunId(1, 2)
    replay([ended(ExitReason.NODE_LOST, at_s=41.0), planned(attempt=2, at_s=50.0)], state)
    replay([ev.RunStarted(run=second, at_s=51.0)], state)
    replay([ev.TrainingBegan(run=second, at_s=55.0, epoch=100, epochs=1000, unit="step")], state)
    assert (state.jobs[1].epochs_done, state.jobs[1].lost_s) == (100, 16.0)


@pytest.mark.parametrize("reason", [ExitReason.KILLED, ExitReason.OUT_OF_MEMORY])
@pytest.mark.parametrize("able", [{"uses_library": True}, {"checkpoint_dir": "c"}])
def test_a_killed_job_with_checkpoints_is_tried_again_up_to_a_bound(reason: ExitReason, able: dict[str, Any]) -> None:
    state = submitted(**able)
    for attempt in range(1, MAX_KILLS + 1):
        replay([planned(attempt, 10.0 * attempt), ended(reason, attempt, 10.0 * attempt + 1.0)], state)
        job = state.jobs[1]
        assert (job.state, job.kills, job.failures) == (JobState.QUEUED, attempt, 0)
        assert job.not_before_s == 10.0 * attempt + 1.0 + 5.0 * 2 ** (attempt - 1), "each time it waits longer"
    replay([planned(MAX_KILLS + 1, 900.0), ended(reason, MAX_KILLS + 1, 901.0)], state)
    assert (state.jobs[1].state, state.jobs[1].kills, state.jobs[1].failures) == (JobState.FAILED, MAX_KILLS, 1)


def test_kills_and_failures_are_counted_apart() -> None:
    state = submitted(uses_library=True, retries=1)
    replay([planned(1), ended(ExitReason.KILLED, 1), planned(2, 20.0), ended(ExitReason.USER_ERROR, 2, 21.0)], state)
    assert (state.jobs[1].state, state.jobs[1].kills, state.jobs[1].failures) == (JobState.QUEUED, 1, 1)
    replay([planned(3, 30.0), ended(ExitReason.KILLED, 3, 31.0)], state)
    assert (state.jobs[1].state, state.jobs[1].kills) == (JobState.QUEUED, 2)
    replay([planned(4, 40.0), ended(ExitReason.USER_ERROR, 4, 41.0)], state)
    assert state.jobs[1].state is JobState.FAILED


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ExitReason.KILLED),
        ({"uses_library": True, "restart": RestartPolicy.NEVER}, ExitReason.KILLED),
        ({"uses_library": True}, ExitReason.USER_ERROR),
        ({"uses_library": True}, ExitReason.START_FAILED),
    ],
)
def test_what_would_begin_from_nothing_or_fail_again_fails_at_once(more: dict[str, Any], reason: ExitReason) -> None:
    state = submitted(**more)
    replay([planned(), ended(reason)], state)
    assert (state.jobs[1].state, state.jobs[1].kills, state.jobs[1].failures) == (JobState.FAILED, 0, 1)
