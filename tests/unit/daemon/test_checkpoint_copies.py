"""Which jobs' checkpoints are copied, when, and what is recorded of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from swell.core.events import CheckpointCopied, CheckpointSeen, Event
from swell.core.ids import JobId, RunId
from swell.core.job import JobSpec
from swell.core.observations import CheckpointKept
from swell.core.resources import Allocation, Contact, Node, Part
from swell.core.state import JobRecord, JobState, Run, State
from swell.daemon.checkpoint_copies import CheckpointCopies, is_copied
from swell.ports import Order

NODES = {name: Node(name=name, executor="ssh", boot_id="b", lease_s=60.0) for name in ("gpu1", "gpu2")}


class Still:
    """A clock that somebody moves."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


class Fake:
    def __init__(self) -> None:
        self.asked: list[tuple[RunId, list[str]]] = []
        self.kept: CheckpointKept | None = None
        self.jobs: list[JobId] = []
        self.down = False

    async def copy(self, order: Order, others: Mapping[str, Node]) -> CheckpointKept | None:
        self.asked.append((order.run, sorted(others)))
        if self.down:
            raise OSError("no answer")
        return self.kept

    async def copied_jobs(self) -> Sequence[JobId]:
        return list(self.jobs)

    async def forget_copy(self, job: JobId) -> None:
        self.jobs.remove(job)


def record(state: JobState = JobState.RUNNING, node: str = "gpu1", *, copied: bool = True) -> JobRecord:
    run = Run(id=RunId(1, 1), allocation=Allocation(parts=(Part(node=node),)), planned_s=0.0)
    wanted = JobSpec(name="j", command=("true",), uses_library=True, copy_checkpoints=copied)
    return JobRecord(id=1, spec=wanted, submitted_s=0.0, state=state, run=run, uses_library=True, files_on=node)


class Scene:
    def __init__(self, job: JobRecord) -> None:
        self.state = State(jobs={1: job}, active={1: None}, nodes=dict(NODES))
        self.committed: list[Event] = []
        self.fake, self.clock = Fake(), Still()
        self.copies = CheckpointCopies(lambda: self.state, self.fake, self.commit, self.clock, every_s=30.0)

    async def commit(self, events: Sequence[Event]) -> None:
        self.committed += events

    async def look(self) -> None:
        self.copies.look()
        for _ in range(5):
            await asyncio.sleep(0)


def test_a_running_job_is_asked_about_now_and_then_with_all_other_machines() -> None:
    async def play() -> None:
        scene = Scene(record())
        for at_s in (1000.0, 1010.0, 1029.0, 1030.0):
            scene.clock.at_s = at_s
            await scene.look()
        assert scene.fake.asked == [(RunId(1, 1), ["gpu2"])] * 2

    asyncio.run(play())


def test_what_was_copied_is_recorded_once() -> None:
    async def play() -> None:
        scene = Scene(record())
        scene.fake.kept = CheckpointKept(job=1, at_s=1000.0, epoch=3, bytes=7)
        await scene.look()
        assert scene.committed == [CheckpointCopied(job=1, at_s=1000.0, epoch=3, bytes=7)]

    asyncio.run(play())


def test_a_script_without_the_library_has_written_a_checkpoint_when_a_new_one_was_copied() -> None:
    async def play() -> None:
        job = record()
        scene = Scene(replace(job, uses_library=False, spec=replace(job.spec, uses_library=False, checkpoint_dir="c")))
        scene.fake.kept = CheckpointKept(job=1, at_s=1000.0, epoch=3, bytes=7)
        await scene.look()
        assert [type(event) for event in scene.committed] == [CheckpointCopied, CheckpointSeen]

    asyncio.run(play())


def test_a_copy_made_after_a_request_to_stop_may_be_of_a_checkpoint_from_before_it() -> None:
    """It counts from the look before it; while the stop waits, these are close together."""

    async def play() -> None:
        job = record()
        scene = Scene(replace(job, uses_library=False, spec=replace(job.spec, uses_library=False, checkpoint_dir="c")))
        await scene.look()
        scene.state.jobs[1] = replace(scene.state.jobs[1], state=JobState.STOPPING)
        for at_s in (1020.0, 1023.0):
            scene.clock.at_s = at_s
            await scene.look()
        scene.clock.at_s = 1026.0
        scene.fake.kept = CheckpointKept(job=1, at_s=1026.0, epoch=3, bytes=7)
        await scene.look()
        assert len(scene.fake.asked) == 3
        assert scene.committed[1:] == [CheckpointSeen(run=RunId(1, 1), at_s=1023.0)]

    asyncio.run(play())


def test_a_machine_that_does_not_answer_is_asked_again_later() -> None:
    async def play() -> None:
        scene = Scene(record())
        scene.fake.down = True
        await scene.look()
        scene.clock.at_s += 30.0
        await scene.look()
        assert len(scene.fake.asked) == 2
        assert scene.committed == []

    asyncio.run(play())


def test_which_jobs_are_copied() -> None:
    away = {**NODES, "gpu1": replace(NODES["gpu1"], contact=Contact.AWAY)}
    here = {"gpu1": Node(name="gpu1")}
    assert is_copied(record(), NODES)
    assert not is_copied(record(JobState.QUEUED), NODES)
    assert not is_copied(record(copied=False), NODES)
    assert not is_copied(record(), away)
    assert not is_copied(record(), here), "the daemon's own machine is not lost without the daemon"


def test_copies_of_jobs_that_need_none_any_more_are_deleted() -> None:
    async def play() -> None:
        scene = Scene(record())
        scene.state.jobs[2] = replace(record(JobState.COMPLETED), id=2)
        scene.state.jobs[3] = replace(record(JobState.FAILED), id=3)
        scene.fake.jobs = [1, 2, 3, 4]
        await scene.copies.sweep()
        assert scene.fake.jobs == [1, 3], "a failed job may be queued again"

    asyncio.run(play())
