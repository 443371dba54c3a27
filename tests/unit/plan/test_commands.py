"""What people may do to a job in which state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from swell.core import events as ev
from swell.core.errors import Conflict, NotFound
from swell.core.events import ExitReason, StopWhy
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Mount
from swell.core.lifecycle import apply, replay
from swell.core.resources import Allocation, Gpu, Node, NodeCondition, Part
from swell.core.state import JobState, State
from swell.plan import commands
from swell.plan.deadlines import Force, Patience, force_of

RUN = RunId(1, 1)
NODE = Node(name="n1", gpus=(Gpu(index=0),))


def state(*events: ev.Event, uses_library: bool = True) -> State:
    spec = JobSpec(name="j", command=("true",), gpus=GpuRequest(), uses_library=uses_library)
    first: list[ev.Event] = [ev.NodeObserved(node=NODE, at_s=0.0), ev.JobSubmitted(job=1, spec=spec, at_s=0.0)]
    return replay([*first, *events])


def running(**changes: bool) -> State:
    allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")
    return state(ev.RunPlanned(run=RUN, allocation=allocation, at_s=1.0), ev.RunStarted(run=RUN, at_s=2.0), **changes)


def ended() -> State:
    return replay([ev.RunEnded(run=RUN, reason=ExitReason.FINISHED, at_s=5.0)], running())


def test_cancelling_a_queued_job_ends_it() -> None:
    world = state()
    replay(commands.cancel(world, 1, by="ann", reason="", now_s=3.0), world)
    assert (world.jobs[1].state, world.jobs[1].message) == (JobState.CANCELLED, "cancelled by ann")


def test_cancelling_a_running_job_stops_its_run_and_twice_is_once() -> None:
    world = running()
    replay(commands.cancel(world, 1, by="ann", reason="", now_s=3.0), world)
    assert world.jobs[1].state is JobState.STOPPING
    assert commands.cancel(world, 1, by="ann", reason="", now_s=4.0) == []


def test_a_job_that_is_being_preempted_can_still_be_cancelled() -> None:
    world = running()
    replay([ev.RunStopRequested(run=RUN, why=StopWhy.PREEMPTED, at_s=3.0)], world)
    replay(commands.cancel(world, 1, by="ann", reason="", now_s=4.0), world)
    replay([ev.RunEnded(run=RUN, reason=ExitReason.STOPPED, at_s=5.0)], world)
    assert world.jobs[1].state is JobState.CANCELLED


def test_pause_checkpoints_and_holds_until_resumed() -> None:
    world = running()
    replay(commands.pause(world, 1, by="ann", now_s=3.0), world)
    assert (world.jobs[1].state, world.jobs[1].paused) == (JobState.STOPPING, True)
    replay([ev.RunEnded(run=RUN, reason=ExitReason.STOPPED, at_s=4.0)], world)
    assert (world.jobs[1].state, world.jobs[1].paused) == (JobState.QUEUED, True)
    replay(commands.resume(world, 1, by="ann", now_s=5.0), world)
    assert not world.jobs[1].paused
    assert commands.resume(world, 1, by="ann", now_s=6.0) == []


def test_never_pauses_a_job_that_would_lose_its_work() -> None:
    with pytest.raises(Conflict, match="without losing its work"):
        commands.pause(running(uses_library=False), 1, by="ann", now_s=3.0)


@pytest.mark.parametrize("command", ["cancel", "pause", "resume", "priority"])
def test_ended_jobs_refuse_commands_with_their_state(command: str) -> None:
    asked: dict[str, Callable[[State], list[ev.Event]]] = {
        "cancel": lambda world: commands.cancel(world, 1, by="", reason="", now_s=9.0),
        "pause": lambda world: commands.pause(world, 1, by="", now_s=9.0),
        "resume": lambda world: commands.resume(world, 1, by="", now_s=9.0),
        "priority": lambda world: commands.set_priority(world, 1, 5, by="", now_s=9.0),
    }
    with pytest.raises(Conflict, match="completed"):
        asked[command](ended())


def test_delete_removes_an_ended_job_and_stops_a_running_one() -> None:
    assert [type(e) for e in commands.remove(ended(), 1, by="", now_s=9.0)] == [ev.JobRemoved]
    assert [type(e) for e in commands.remove(running(), 1, by="", now_s=9.0)] == [ev.RunStopRequested]


def with_another(spec: JobSpec, *, over: bool = False) -> State:
    world = ended()
    apply(world, ev.JobSubmitted(job=world.last_job + 1, spec=spec, at_s=5.0))
    if over:
        apply(world, ev.JobCancelled(job=world.last_job, at_s=6.0))
    return world


DIRS = ("home/.swell/work", "home/.swell/checkpoints")


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(name="b", command=("x",), depends_on=(1,)),
        JobSpec(name="b", command=("python", "t.py", "--from=/home/.swell/checkpoints/1/last.pt")),
        JobSpec(name="b", command=("sh", "-c", "cat /home/.swell/work/1")),
        JobSpec(name="b", command=("x",), env={"FROM": "/home/.swell/checkpoints/1"}),
        JobSpec(name="b", command=("x",), mounts=(Mount(source="/home/.swell/work/1/", target="/in"),)),
    ],
)
def test_never_removes_a_job_whose_files_another_one_wants(spec: JobSpec) -> None:
    with pytest.raises(Conflict, match="cancel 2"):
        commands.remove(with_another(spec), 1, by="", now_s=9.0, dirs=DIRS)
    assert commands.remove(with_another(spec, over=True), 1, by="", now_s=9.0, dirs=DIRS)


def test_never_removes_a_job_in_whose_directory_an_ended_one_keeps_its_own() -> None:
    world = with_another(JobSpec(name="b", command=("x",), checkpoint_dir="/home/.swell/checkpoints/1"), over=True)
    with pytest.raises(Conflict, match="swell rm 2"):
        commands.remove(world, 1, by="", now_s=9.0, dirs=DIRS)


def test_a_job_with_a_longer_number_is_another_one() -> None:
    world = with_another(JobSpec(name="b", command=("cat", "/home/.swell/work/12/x", "/home/.swell/other/1")))
    assert [type(e) for e in commands.remove(world, 1, by="", now_s=9.0, dirs=DIRS)] == [ev.JobRemoved]


def test_unknown_names_say_where_to_look() -> None:
    with pytest.raises(NotFound, match="swell ls"):
        commands.cancel(state(), 7, by="", reason="", now_s=1.0)
    with pytest.raises(NotFound, match="swell nodes"):
        commands.set_node_condition(state(), "x", NodeCondition.CORDONED, why="", by="", now_s=1.0)


def test_a_node_in_use_is_never_removed() -> None:
    with pytest.raises(Conflict, match="drain n1"):
        commands.remove_node(running(), "n1", by="", now_s=3.0)
    assert len(commands.remove_node(ended(), "n1", by="", now_s=9.0)) == 1


def test_several_jobs_of_one_submission_share_a_batch_and_get_ids_in_order() -> None:
    world = state()
    specs = [JobSpec(name=f"j{i}", command=("true",)) for i in range(3)]
    replay(commands.submit(world, specs, key="k", batch="", now_s=1.0), world)
    assert [world.jobs[i].batch for i in (2, 3, 4)] == ["b2"] * 3
    assert world.keys == {"k": 2}


# -- update and requeue -----------------------------------------------------------------------------------------------


def test_update_of_a_job_that_waits_changes_its_spec_and_priority() -> None:
    world = state()
    wanted = commands.Update(gpus=GpuRequest(min=2, max=8), time_limit_s=60.0, priority=7)
    replay(commands.update(world, 1, wanted, by="ada", now_s=5.0), world)
    record = world.jobs[1]
    assert (record.spec.gpus.max, record.spec.time_limit_s, record.priority) == (8, 60.0, 7)


def test_update_never_takes_a_size_from_a_run_that_cannot_be_resized() -> None:
    world = running(uses_library=False)
    with pytest.raises(Conflict, match="runs on 1 GPU and cannot be resized"):
        commands.update(world, 1, commands.Update(gpus=GpuRequest(min=2, max=4)), by="", now_s=5.0)
    assert commands.update(world, 1, commands.Update(gpus=GpuRequest(min=1, max=2)), by="", now_s=5.0)
    with pytest.raises(Conflict, match="only change while it waits"):
        commands.update(world, 1, commands.Update(gpus=GpuRequest(min=0, max=0)), by="", now_s=5.0)


def test_update_never_sets_a_limit_that_is_over_already() -> None:
    world = running(uses_library=False)
    with pytest.raises(Conflict, match="has run for 98 s already"):
        commands.update(world, 1, commands.Update(time_limit_s=50.0), by="", now_s=100.0)


def test_a_job_that_has_not_run_yet_may_get_any_limit() -> None:
    (updated,) = commands.update(state(), 1, commands.Update(time_limit_s=0.5), by="", now_s=100.0)
    assert isinstance(updated, ev.JobUpdated)
    assert updated.time_limit_s == 0.5


def test_an_ended_job_is_requeued_and_not_updated() -> None:
    world = running(uses_library=False)
    replay([ev.RunEnded(run=RUN, reason=ExitReason.USER_ERROR, at_s=9.0)], world)
    with pytest.raises(Conflict, match="swell requeue 1"):
        commands.update(world, 1, commands.Update(priority=1), by="", now_s=10.0)
    replay(commands.requeue(world, 1, by="ada", now_s=10.0), world)
    record = world.jobs[1]
    assert (record.state, record.failures, record.attempts, record.ended_s) == ("queued", 0, 1, None)
    assert list(world.active) == [1]
    assert not world.ended
    assert commands.requeue(world, 1, by="", now_s=11.0) == []


def test_requeue_of_a_running_job_stops_it_only_if_it_can_go_on() -> None:
    with pytest.raises(Conflict, match="would lose its work"):
        commands.requeue(running(uses_library=False), 1, by="", now_s=5.0)
    (event,) = commands.requeue(running(), 1, by="ada", now_s=5.0)
    assert isinstance(event, ev.RunStopRequested)
    assert (event.why, event.reason) == (StopWhy.PREEMPTED, "queued again by ada")


def test_cancel_at_once_after_a_cancel_that_takes_its_time() -> None:
    world = running(uses_library=False)
    replay(commands.cancel(world, 1, by="", reason="", now_s=5.0), world)
    assert commands.cancel(world, 1, by="", reason="", now_s=6.0) == []
    (event,) = commands.cancel(world, 1, by="", reason="", now_s=6.0, at_once=True)
    replay([event], world)
    assert commands.cancel(world, 1, by="", reason="", now_s=7.0, at_once=True) == []
    record = world.jobs[1]
    assert record.run is not None
    assert force_of(record, record.run, 6.0, Patience()) == (Force.KILL, None)
