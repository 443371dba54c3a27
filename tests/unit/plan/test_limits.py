"""Limits of one user: what is refused at submit, and which jobs wait although GPUs are free."""

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.decision import ReasonCode
from swell.core.errors import Conflict
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.limits import Limits, Use, use_of
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.snapshot import Options
from swell.core.state import State
from swell.plan.explain import sentence
from swell.plan.limits import check_queue
from swell.plan.snapshotter import Snapshotter
from swell.speed.book import Book

SPEC = JobSpec(name="j", command=("x",), user="ana")
TWO = Options(limits=Limits(queued=3, running=2))


def state_with(*specs: JobSpec, running: int = 0) -> State:
    """Jobs 1, 2, … of which the first `running` run."""
    state = State()
    node = Node(name="n", gpus=tuple(Gpu(index=i) for i in range(8)), cpus=8, memory_mib=1000)
    apply(state, ev.NodeObserved(node=node, at_s=0.0))
    for job, spec in enumerate(specs, start=1):
        apply(state, ev.JobSubmitted(job=job, spec=spec, at_s=float(job)))
    for job in range(1, running + 1):
        allocation = Allocation(parts=(Part(node="n", gpus=(job,)),))
        apply(state, ev.RunPlanned(run=RunId(job, 1), allocation=allocation, at_s=100.0 + job))
    return state


def test_a_submission_beyond_the_queue_limit_is_refused_and_says_what_to_do() -> None:
    state = state_with(SPEC, SPEC, SPEC, running=1)
    check_queue(state, [SPEC], TWO)
    with pytest.raises(Conflict, match=r"ana has 2 jobs waiting, and with 2 more .* limit of 3 .*swell cancel.*quota"):
        check_queue(state, [SPEC, SPEC], TWO)


def test_the_limit_is_per_user_and_one_user_may_have_another() -> None:
    state = state_with(SPEC, SPEC, SPEC)
    check_queue(state, [replace(SPEC, user="bo")], TWO)
    check_queue(state, [SPEC] * 7, replace(TWO, limits_of={"ana": Limits(queued=10)}))
    check_queue(state, [SPEC] * 1000, replace(TWO, limits_of={"ana": Limits()}))


def held_back(state: State, options: Options) -> dict[int, ReasonCode]:
    _, held = Snapshotter(Book()).take(state, 200.0, options)
    return {job: reason.code for job, reason in held.items()}


def test_never_more_jobs_of_one_user_than_they_may_run_are_up_for_decision() -> None:
    state = state_with(SPEC, SPEC, SPEC, replace(SPEC, user="bo"), running=1)
    assert held_back(state, TWO) == {3: ReasonCode.LIMIT}
    assert held_back(state, Options()) == {}


def test_of_ones_own_jobs_the_more_important_comes_first() -> None:
    state = state_with(SPEC, SPEC, replace(SPEC, priority=5), running=1)
    assert held_back(state, TWO) == {2: ReasonCode.LIMIT}


def test_a_paused_job_takes_no_place_of_another() -> None:
    state = state_with(SPEC, SPEC, SPEC, running=1)
    apply(state, ev.JobPaused(job=2, by="ana", at_s=150.0))
    assert held_back(state, TWO) == {2: ReasonCode.PAUSED}


def test_waiting_for_ones_own_limit_is_not_starving() -> None:
    state = state_with(SPEC, SPEC, SPEC, running=1)
    snapshot, _ = Snapshotter(Book()).take(state, 200.0, TWO)
    assert snapshot.by_id[2].waiting_since_s == 101.0  # when job 1 started, not when job 2 was submitted
    snapshot, _ = Snapshotter(Book()).take(state, 200.0, Options())
    assert snapshot.by_id[2].waiting_since_s == 2.0


def test_the_reason_is_a_sentence_that_names_the_way_out() -> None:
    _, held = Snapshotter(Book()).take(state_with(SPEC, SPEC, SPEC, running=1), 200.0, TWO)
    assert sentence(held[3]) == ("ana may run 2 jobs at the same time; it starts when one of them ends (`swell quota`)")


def test_use_counts_what_waits_what_runs_and_its_gpus() -> None:
    state = state_with(SPEC, SPEC, SPEC, running=2)
    assert use_of(state.jobs[job] for job in state.active) == Use(queued=1, running=2, gpus=2)
