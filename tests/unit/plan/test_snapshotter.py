"""What decisions see of jobs: since when each could have run."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from lives import T0, moving_life, short_life, two_nodes
from swell.core import events as ev
from swell.core import lifecycle
from swell.core.events import Event, ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply, replay
from swell.core.resources import Allocation, Gpu, Node, NodeCondition, Part
from swell.core.snapshot import Options
from swell.core.state import JobRecord, State, copy_of
from swell.plan.snapshotter import DEFAULT_RESTART_COST_S, Snapshotter, as_scheduled
from swell.ports import Remaining
from swell.speed.book import Book

NODE = Node(name="n1", gpus=(Gpu(index=0),))
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")


def submitted(job: int, **changes: object) -> ev.JobSubmitted:
    spec = JobSpec(name=f"j{job}", command=("true",), **changes)  # type: ignore[arg-type]  # fields of a spec
    return ev.JobSubmitted(job=job, spec=spec, at_s=0.0)


def run(reason: ExitReason, at_s: float) -> list[ev.Event]:
    one = RunId(1, 1)
    planned = ev.RunPlanned(run=one, allocation=ALLOCATION, at_s=1.0)
    return [planned, ev.RunStarted(run=one, at_s=2.0), ev.RunEnded(run=one, reason=reason, at_s=at_s)]


def waiting_since_s(*events: ev.Event, now_s: float) -> dict[int, float | None]:
    state = replay([ev.NodeObserved(node=NODE, at_s=0.0), *events])
    snapshot, _ = Snapshotter(Book()).take(state, now_s, Options())
    return {view.id: view.waiting_since_s for view in snapshot.jobs}


def test_a_job_waits_from_when_the_jobs_it_depends_on_completed() -> None:
    events = [submitted(1), submitted(2, depends_on=(1,)), *run(ExitReason.FINISHED, at_s=500.0)]
    assert waiting_since_s(*events, now_s=600.0) == {2: 500.0}


def test_only_a_run_that_trains_has_a_speed() -> None:
    one = RunId(1, 1)
    life: list[Event] = [
        ev.NodeObserved(node=NODE, at_s=0.0),
        submitted(1),
        ev.RunPlanned(run=one, allocation=ALLOCATION, at_s=1.0),
        ev.RunStarted(run=one, at_s=2.0),
        ev.RunStopRequested(run=one, why=ev.StopWhy.PREEMPTED, at_s=3.0),
    ]

    def speed(events: list[Event]) -> float:
        snapshot, _ = Snapshotter(Book()).take(replay(events), 10.0, Options())
        return snapshot.jobs[0].rate_now

    assert speed(life[:3]) == speed(life) == 0.0, "it starts, and it stops"
    assert speed(life[:4]) == pytest.approx(1.0)


def test_a_job_waits_from_when_its_back_off_is_over() -> None:
    events = [submitted(1, retries=1, backoff_s=60.0), *run(ExitReason.USER_ERROR, at_s=500.0)]
    assert waiting_since_s(*events, now_s=600.0) == {1: 560.0}


@pytest.mark.parametrize(
    ("condition", "seen"),
    [(NodeCondition.READY, NodeCondition.CORDONED), (NodeCondition.DRAINING, NodeCondition.DRAINING)],
)
def test_a_node_that_its_manager_has_closed_keeps_what_it_runs_unless_it_is_drained(
    condition: NodeCondition, seen: NodeCondition
) -> None:
    """Found on a cluster: `kubectl cordon`, and a kubelet that fell silent, stopped every training of the node."""
    found = as_scheduled(replace(NODE, closed="cordoned in Kubernetes", condition=condition))
    assert found is not None
    assert found.condition is seen


def test_a_snapshot_holds_what_teams_with_a_budget_have_used_up_to_now() -> None:
    state = replay([submitted(1, team="a"), *run(ExitReason.FINISHED, at_s=1.0)[:2], submitted(2, team="b")])
    snapshot, _ = Snapshotter(Book()).take(state, 102.0, Options(budgets={"a": 1.0, "c": 1.0}))
    assert snapshot.month_gpu_s == {"a": 100.0, "c": 0.0}


def test_a_picture_of_another_state_is_in_that_states_order() -> None:
    book = Book()
    snapshotter = Snapshotter(book)
    node = ev.NodeObserved(node=NODE, at_s=0.0)
    one = replay([node, submitted(1), submitted(3)])
    two = replay([node, submitted(2), submitted(3), submitted(4)])
    for state in (one, two, one):
        snapshot, _ = snapshotter.take(state, 10.0, Options())
        assert snapshot.jobs == Snapshotter(book).take(state, 10.0, Options())[0].jobs


def test_a_book_that_follows_records_is_asked_only_about_those_that_changed() -> None:
    class Following(Book):
        follows_records = True
        asked = 0

        def remaining(self, job: JobRecord) -> Remaining:
            self.asked += 1
            return super().remaining(job)

    book = Following()
    snapshotter = Snapshotter(book)
    state = replay([ev.NodeObserved(node=NODE, at_s=0.0), *(submitted(job) for job in (1, 2, 3))])
    first, _ = snapshotter.take(state, 10.0, Options())
    assert book.asked == 3
    apply(state, ev.RunPlanned(run=RunId(2, 1), allocation=ALLOCATION, at_s=20.0))
    second, _ = snapshotter.take(state, 20.0, Options())
    assert book.asked == 4
    assert [a is b for a, b in zip(first.jobs, second.jobs, strict=True)] == [True, False, True]


class Steady(Book):
    """Has always the same to say of a job."""

    follows_records = True

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[int, Remaining] = {}

    def remaining(self, job: JobRecord) -> Remaining:
        return self._said.setdefault(job.id, super().remaining(job))


def epoch(number: int, **changes: object) -> ev.EpochEnded:
    fields = {"epoch_s": 5.0, "gpus": 1, "gpu_type": "gpu", **changes}
    return ev.EpochEnded(run=RunId(1, 1), at_s=10.0 * number, epoch=number, **fields)  # type: ignore[arg-type]


def running() -> State:
    planned = ev.RunPlanned(run=RunId(1, 1), allocation=ALLOCATION, at_s=1.0)
    started = ev.RunStarted(run=RunId(1, 1), at_s=2.0)
    return replay([ev.NodeObserved(node=NODE, at_s=0.0), submitted(1), planned, started])


def test_a_view_is_kept_when_an_epoch_ended_and_all_went_as_said() -> None:
    state, snapshotter = running(), Snapshotter(Steady())
    before = snapshotter.take(state, 9.0, Options())[0].jobs[0]
    apply(state, epoch(1))
    assert snapshotter.take(state, 10.0, Options())[0].jobs[0] is before


def test_never_keeps_a_view_when_the_record_says_something_else() -> None:
    changes: list[ev.Event] = [
        epoch(1, gpu_memory_mib=4096),
        ev.PriorityChanged(job=1, priority=5, at_s=10.0),
        ev.TrainingBegan(run=RunId(1, 1), epoch=0, at_s=10.0),  # it has shown that it can be stopped
        ev.RunStopRequested(run=RunId(1, 1), why=ev.StopWhy.PREEMPTED, at_s=10.0),
    ]
    for change in changes:
        book, state = Steady(), running()
        snapshotter = Snapshotter(book)
        before = snapshotter.take(state, 9.0, Options())[0].jobs[0]
        apply(state, change)
        after = snapshotter.take(state, 10.0, Options())[0].jobs[0]
        assert after is not before, change
        assert after == Snapshotter(book).take(state, 10.0, Options())[0].jobs[0]


@pytest.mark.parametrize("remembered", [1, 4096])
@pytest.mark.parametrize("seed", range(20))
def test_never_another_picture_than_a_fresh_one(monkeypatch: pytest.MonkeyPatch, seed: int, remembered: int) -> None:
    """Whatever happened in between, also more than a state remembers."""
    monkeypatch.setattr(lifecycle, "RECENT", remembered)
    rng, state, book = random.Random(seed), State(), Book()
    snapshotter = Snapshotter(book)
    lives = [lives_of(job) for job, lives_of in enumerate(rng.choices([short_life, moving_life], k=8), start=1)]
    for event in [*two_nodes(), *(life.pop(0) for life in lives)]:
        apply(state, event)
    while any(lives):
        apply(state, rng.choice([life for life in lives if life]).pop(0))
        if rng.random() < 0.3:
            now_s = T0 + 100.0
            assert snapshotter.take(state, now_s, Options()) == Snapshotter(book).take(state, now_s, Options())


def cluster(*events: ev.Event) -> State:
    nodes = [ev.NodeObserved(node=replace(NODE, name=name), at_s=0.0) for name in ("n1", "n2", "n3")]
    return replay([*nodes, submitted(1), submitted(2), submitted(3), *events])


CHANGES: dict[str, Event] = {
    "measured use": ev.NodeObserved(node=replace(NODE, gpus=(Gpu(index=0, others_memory_mib=7),)), at_s=1.0),
    "others": ev.NodeObserved(node=replace(NODE, gpus=(Gpu(index=0, others=True),)), at_s=1.0),
    "another size": ev.NodeObserved(node=replace(NODE, gpus=(Gpu(index=0), Gpu(index=1))), at_s=1.0),
    "another type": ev.NodeObserved(node=replace(NODE, gpus=(Gpu(index=0, type="V100"),)), at_s=1.0),
    "memory": ev.NodeObserved(node=replace(NODE, gpus=(Gpu(index=0, memory_mib=9),)), at_s=1.0),
    "cordoned": ev.NodeConditionChanged(node="n1", condition=NodeCondition.CORDONED, at_s=1.0),
    "lost": ev.NodeConditionChanged(node="n1", condition=NodeCondition.LOST, at_s=1.0),
    "removed": ev.NodeRemoved(node="n1", at_s=1.0),
    "added": ev.NodeObserved(node=replace(NODE, name="n0"), at_s=1.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_a_node_has_changed_a_snapshot_is_as_if_made_anew(change: ev.Event) -> None:
    book, state = Book(), cluster()
    snapshotter = Snapshotter(book)
    snapshotter.take(state, 2.0, Options())
    apply(state, change)
    again, _ = snapshotter.take(state, 3.0, Options())
    anew, _ = Snapshotter(book).take(state, 3.0, Options())
    assert again == anew
    assert list(again.capacity.gpu_milli) == list(anew.capacity.gpu_milli)


@pytest.mark.parametrize("change", ["measured use", "others", "cordoned", "added"])
def test_views_are_not_made_again_for_what_they_are_not_made_of(change: str) -> None:
    state = cluster()
    snapshotter = Snapshotter(Book())
    before, _ = snapshotter.take(state, 2.0, Options())
    apply(state, CHANGES[change])
    after, _ = snapshotter.take(state, 2.0, Options())
    assert all(one is other for one, other in zip(before.jobs, after.jobs, strict=True))
    assert after.nodes != before.nodes


def test_a_branch_follows_its_own_state_and_leaves_the_first_alone() -> None:
    book, state = Book(), cluster()
    snapshotter = Snapshotter(book)
    first, _ = snapshotter.take(state, 2.0, Options())
    other = copy_of(state)
    branch = snapshotter.branch(other, book)
    for event in (submitted(4), ev.PriorityChanged(job=2, priority=9, at_s=2.0), ev.JobCancelled(job=1, at_s=2.0)):
        apply(other, event)
    apply(other, CHANGES["added"])
    assert branch.take(other, 2.0, Options())[0] == Snapshotter(book).take(other, 2.0, Options())[0]
    assert snapshotter.take(state, 2.0, Options())[0] == first


def test_a_restart_is_expected_to_cost_what_starts_of_the_family_took_until_one_of_its_own_has() -> None:
    book, state = Book(), State()
    snapshotter = Snapshotter(book)

    def costs_s(*events: ev.Event) -> dict[int, float]:
        for event in events:
            apply(state, event)
            book.learn(event)
        return {view.id: view.restart_cost_s for view in snapshotter.take(state, 9.0, Options())[0].jobs}

    same: dict[str, Any] = {"family": "one"}
    began = ev.TrainingBegan(run=RunId(1, 1), at_s=5.0, epoch=0, epochs=10)
    first: list[ev.Event] = [
        ev.NodeObserved(node=NODE, at_s=0.0),
        submitted(1, **same),
        submitted(2, **same),
        submitted(3, family="x"),
    ]
    assert set(costs_s(*first).values()) == {DEFAULT_RESTART_COST_S}
    planned = ev.RunPlanned(run=RunId(1, 1), allocation=ALLOCATION, at_s=1.0)
    assert costs_s(planned, ev.RunStarted(run=RunId(1, 1), at_s=2.0), began) == {1: 4.0, 2: 4.0, 3: 30.0}
    again: list[ev.Event] = [
        ev.RunEnded(run=RunId(1, 1), reason=ExitReason.STOPPED, at_s=6.0),
        ev.RunPlanned(run=RunId(1, 2), allocation=ALLOCATION, at_s=6.0),
        ev.RunStarted(run=RunId(1, 2), at_s=7.0),
        ev.TrainingBegan(run=RunId(1, 2), at_s=8.0, epoch=0, epochs=10),
    ]
    assert costs_s(*again) == {1: pytest.approx(3.0), 2: 2.0, 3: 30.0}  # its own: with what its stop cost
