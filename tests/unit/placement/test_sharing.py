"""Whether jobs on one GPU should be there together: measured, judged, undone."""

from __future__ import annotations

import pytest

from swell.core.events import EpochEnded, Event, ExitReason, JobRemoved, RunEnded, RunPlanned
from swell.core.ids import RunId
from swell.core.resources import Allocation, Part, Share
from swell.placement.consolidated import Consolidated
from swell.placement.interference import Interference
from swell.placement.sharing import outgrown, pays_to_share
from unit.placement.build import breaches, node, rng, sharing, snap, want


@pytest.mark.parametrize(
    ("alone", "shared", "pays"),
    [
        ([1.0, 1.0], [1.0, 1.0], True),  # no disturbance at all
        ([1.0, 1.0], [1.7, 1.7], True),  # 59 % of their speed each: 18 % more in all
        ([1.0, 1.0], [2.0, 2.0], False),  # as if they took turns
        ([1.0, 1.0], [5.0, 1.2], False),  # one starves, the other gains nothing
        ([1.0, 1.0, 1.0], [2.5, 2.5, 2.5], True),
        ([0.0, 1.0], [3.0, 3.0], True),  # one never ran alone: not sent away on a guess
        ([1.0], [9.0], True),
    ],
)
def test_sharing_pays_when_more_is_done_than_in_turns(alone: list[float], shared: list[float], pays: bool) -> None:
    assert pays_to_share(alone, shared) is pays


def planned(job: int, gpu: int = 0, attempt: int = 1, share: bool = True) -> RunPlanned:
    piece = Share(memory_mib=5000, milli=313) if share else None
    allocation = Allocation(parts=(Part(node="n1", gpus=(gpu,)),), gpu_type="gpu", share=piece)
    return RunPlanned(run=RunId(job, attempt), allocation=allocation, at_s=0.0)


def epoch(job: int, step_s: float) -> EpochEnded:
    return EpochEnded(run=RunId(job, 1), at_s=0.0, epoch=1, step_s=step_s)


def judged(*events: Event) -> list[int]:
    watch = Interference()
    for event in events:
        watch.learn(event)
    return list(watch.alone)


ALONE = (planned(1), epoch(1, 1.0), planned(2, gpu=1), epoch(2, 1.0))
"""Both were measured alone; then the second comes to the first."""
TOGETHER = (*ALONE, RunEnded(run=RunId(2, 1), reason=ExitReason.STOPPED, at_s=0.0), planned(2, attempt=2))


def test_the_last_comer_goes_when_sharing_does_not_pay() -> None:
    assert judged(*TOGETHER, epoch(1, 9.9), epoch(1, 2.5), epoch(2, 2.5)) == [2]


def test_a_report_in_which_somebody_came_does_not_count() -> None:
    assert judged(*TOGETHER, epoch(1, 99.0), epoch(1, 1.2), epoch(2, 1.2)) == []


def test_jobs_that_hold_whole_gpus_are_never_judged() -> None:
    assert judged(planned(1, share=False), planned(2, share=False), epoch(1, 1.0), epoch(1, 9.0), epoch(2, 9.0)) == []


def test_a_removed_job_is_forgotten() -> None:
    bad = (*TOGETHER, epoch(1, 9.9), epoch(1, 2.5), epoch(2, 2.5))
    assert judged(*bad, JobRemoved(job=2, at_s=0.0)) == []


def test_who_is_left_by_its_neighbour_is_measured_alone_again() -> None:
    measured = (planned(3, gpu=1), epoch(3, 1.0), RunEnded(run=RunId(3, 1), reason=ExitReason.STOPPED, at_s=0.0))
    left = (planned(1), planned(2), RunEnded(run=RunId(2, 1), reason=ExitReason.FINISHED, at_s=0.0))
    assert judged(*measured, *left, epoch(1, 9.9), epoch(1, 1.0), planned(3, attempt=2), epoch(3, 2.5)) == []
    slow = (epoch(1, 9.9), epoch(1, 2.5))
    assert judged(*measured, *left, epoch(1, 9.9), epoch(1, 1.0), planned(3, attempt=2), epoch(3, 2.5), *slow) == [3]


def test_a_job_that_has_to_be_alone_leaves_its_neighbours_and_says_why() -> None:
    cluster = [node("n1", 2, memory_mib=16000)]
    jobs = [sharing(1, 5000, on=("n1", 0)), sharing(2, 5000, on=("n1", 0), gpu_milli_now=1000)]
    assert outgrown(jobs[1])
    wanted = want(*jobs)
    layout = Consolidated().place(snap(cluster, jobs), wanted, rng())
    assert not breaches(snap(cluster, jobs), wanted, layout)
    assert layout.allocations[1] == jobs[0].allocation
    assert layout.allocations[2].parts[0].gpus == (1,)
    assert "slow each other down by more than sharing the GPU saves" in layout.moves[0].why
    newcomer = sharing(3, 1000)
    after = [jobs[0], sharing(2, 5000, on=("n1", 1), gpu_milli_now=1000, milli_held=1000), newcomer]
    layout = Consolidated().place(snap(cluster, after), want(*after), rng())
    assert not layout.moves
    assert layout.allocations[3].parts[0].gpus == (0,)


def test_a_peak_within_the_reservation_sends_nobody_away() -> None:
    """Measured 5,000 MiB, reserved 5,000 MiB: the margin on top (5,500) is no reason to stop one of three."""
    cluster = [node("n1", 1, memory_mib=16000)]
    jobs = [sharing(i, 5000, on=("n1", 0), measured_mib=5500) for i in (1, 2, 3)]
    layout = Consolidated().place(snap(cluster, jobs), want(*jobs), rng())
    assert layout.allocations == {j.id: j.allocation for j in jobs}
