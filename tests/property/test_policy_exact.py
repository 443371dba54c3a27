"""Fast algorithms against the slow ones they stand for: AFS-L's textbook scan, FfDL's brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import speed_at
from unit.policy.strategies import EXAMPLES, MARKS
from unit.policy.views import NOW_S, bare, counts, snapshot, view

pytestmark = MARKS


@st.composite
def curves(draw: st.DrawFn, most: int) -> tuple[float, ...]:
    """Never decreasing, with pauses and steps: eighths, so that sums are exact."""
    steps = draw(st.lists(st.integers(0, 12), min_size=most, max_size=most))
    return (0.0, *itertools.accumulate([8 / 8, *(s / 8 for s in steps[1:])]))[: most + 1]


@st.composite
def jobs_of_one_type(draw: st.DrawFn, most_jobs: int) -> list[JobView]:
    jobs = []
    for job in range(1, draw(st.integers(1, most_jobs)) + 1):
        allowed = tuple(sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=6))))
        rem = draw(st.sampled_from([10.0, 10.0, 25.0, 50.0, 80.0, 300.0]))
        jobs.append(view(job, sizes=allowed, rem=rem, curve=draw(curves(6))))
    return jobs


def textbook_afs_l(taken: Snapshot) -> list[int]:
    """One step at a time to the winner of a scan from the shortest job to the longest."""
    jobs = taken.jobs
    free = taken.capacity.gpus("gpu")
    n = [0] * len(jobs)
    while True:
        able = [i for i in range(len(jobs)) if 0 < _next(jobs[i], n[i]) - n[i] <= free]
        if not able:
            return n
        able.sort(key=lambda i: (_length(jobs[i], n[i]), jobs[i].remaining_s(NOW_S), i))
        leader = able[0]
        for other in able[1:]:
            if _beats(jobs[other], n[other], jobs[leader], n[leader]):
                leader = other
        free -= _next(jobs[leader], n[leader]) - n[leader]
        n[leader] = _next(jobs[leader], n[leader])


def _next(job: JobView, n: int) -> int:
    """The next size that is faster (the first one in any case); n when there is none."""
    faster = [s for s in job.sizes if s > n and (n == 0 or _speed(job, s) > _speed(job, n))]
    return faster[0] if faster else n


def _speed(job: JobView, n: int) -> float:
    return speed_at(job, n, "gpu")


def _length(job: JobView, n: int) -> float:
    return job.remaining_s(NOW_S) / _speed(job, n) if n else float("inf")


def _beats(longer: JobView, n_longer: int, shorter: JobView, n_shorter: int) -> bool:
    if n_longer == 0 and n_shorter == 0:
        return False
    gain = (_speed(shorter, _next(shorter, n_shorter)) - _speed(shorter, n_shorter)) / (
        _next(shorter, n_shorter) - n_shorter
    )
    if n_longer == 0:
        return gain / _speed(shorter, n_shorter) <= 1.0
    other = (_speed(longer, _next(longer, n_longer)) - _speed(longer, n_longer)) / (_next(longer, n_longer) - n_longer)
    return other / _speed(longer, _next(longer, n_longer)) > gain / _speed(shorter, n_shorter)


@EXAMPLES
@given(jobs=jobs_of_one_type(8), gpus=st.integers(0, 30))
def test_afs_l_equals_the_textbook_scan(jobs: list[JobView], gpus: int) -> None:
    taken = snapshot(jobs, gpus)
    assert counts(bare("afs-l", taken), jobs) == textbook_afs_l(taken)


def test_afs_l_equals_the_textbook_scan_when_lengths_are_equal() -> None:
    """Job 2 is as long on two GPUs as job 3 on one; found by 20,000 random cases."""
    tail = (1.25,) * 5
    jobs = [
        view(1, sizes=(1, 2), rem=10.0, curve=(0.0, 1.0, *tail)),
        view(2, sizes=(2, 3), rem=25.0, curve=(0.0, 1.0, 2.5, *[3.0] * 4)),
        view(3, sizes=(1, 2), rem=10.0, curve=(0.0, 1.0, *tail)),
    ]
    for gpus in range(9):
        taken = snapshot(jobs, gpus)
        assert counts(bare("afs-l", taken), jobs) == textbook_afs_l(taken)


def test_afs_l_equals_the_textbook_scan_with_many_jobs() -> None:
    """Long enough for blocks to split and to empty."""
    shape = (0.0, 1.0, 1.9, 2.6, 3.1, 3.4, 3.5, 3.5, 5.0)
    jobs = [view(job, 1, 8, rem=10.0 + (job * 7919) % 997, curve=shape) for job in range(1, 101)]
    taken = snapshot(jobs, 330)
    assert counts(bare("afs-l", taken), jobs) == textbook_afs_l(taken)


def best_sum(jobs: Sequence[JobView], gpus: int) -> float:
    best = 0.0
    for sizes in itertools.product(*(job.sizes for job in jobs)):
        if sum(sizes) <= gpus:
            best = max(best, sum(_speed(job, n) for job, n in zip(jobs, sizes, strict=True)))
    return best


@EXAMPLES
@given(jobs=jobs_of_one_type(4), gpus=st.integers(0, 20))
def test_ffdl_equals_brute_force(jobs: list[JobView], gpus: int) -> None:
    admitted, free = [], gpus
    for job in jobs:
        if job.min <= free:
            admitted.append(job)
            free -= job.min
        elif job.min <= gpus:
            break
    given_n = counts(bare("ffdl", snapshot(jobs, gpus)), jobs)
    assert [job for job, n in zip(jobs, given_n, strict=True) if n] == admitted
    assert sum(given_n) <= gpus
    total = sum(_speed(job, n) for job, n in zip(jobs, given_n, strict=True) if n)
    assert total == best_sum(admitted, gpus)
