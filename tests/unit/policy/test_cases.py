"""Hand-computed cases for every policy: outcomes recorded for another implementation, and each of its crashes.

Where our answer differs from theirs, the case says so and why.
"""

from __future__ import annotations

import pytest

from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.policy.registry import POLICIES
from unit.policy.views import bare, counts, decide, linear, power, snapshot, view

THREE = [view(1, 1, 4, req=1, rem=100), view(2, 1, 4, req=2, rem=50), view(3, 1, 8, req=4, rem=10)]
TWOS = [view(1, 2, 4, rem=100), view(2, 2, 4, rem=50), view(3, 2, 4, rem=70)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", [1, 2, 4]),  # theirs 1/1/1: it gives the minimum; ours gives what was asked for
        ("elastic-fifo", [3, 3, 2]),
        ("srjf", [1, 2, 4]),  # theirs 1/1/1, for the same reason
        ("elastic-srjf", [2, 3, 3]),
        ("tiresias", [1, 2, 4]),
        ("elastic-tiresias", [2, 2, 4]),
        ("ffdl", [4, 3, 1]),
        # Theirs 1/3/4: its scan goes by submission and measures b's length with a's GPUs; ours goes by length.
        ("afs-l", [2, 2, 4]),
    ],
)
def test_three_jobs_on_eight_gpus(policy: str, expected: list[int]) -> None:
    assert counts(decide(policy, snapshot(THREE, 8)), THREE) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", [2, 2, 0]),
        ("elastic-fifo", [2, 2, 0]),
        ("tiresias", [2, 2, 0]),
        ("elastic-tiresias", [2, 2, 0]),
        ("srjf", [0, 2, 2]),
        ("elastic-srjf", [0, 2, 2]),
        ("afs-l", [0, 2, 2]),
        ("ffdl", [2, 2, 0]),  # theirs crashes: it ignores minimums
    ],
)
def test_three_jobs_of_two_to_four_on_four_gpus(policy: str, expected: list[int]) -> None:
    assert counts(decide(policy, snapshot(TWOS, 4)), TWOS) == expected


def test_a_job_that_did_not_get_its_minimum_gets_nothing() -> None:
    """Theirs gave B one GPU, below its minimum, and crashed: A(1..1), B(4..8), C(1..4) on 4."""
    jobs = [view(1, 1, 1), view(2, 4, 8), view(3, 1, 4)]
    for policy in POLICIES:
        decision = decide(policy, snapshot(jobs, 4))
        assert all(n == 0 or job.min <= n <= job.max for n, job in zip(counts(decision, jobs), jobs, strict=True))
    assert counts(decide("elastic-fifo", snapshot(jobs, 4)), jobs) == [1, 0, 3]
    assert counts(decide("afs-l", snapshot(jobs, 4)), jobs) == [1, 0, 3]


def test_a_job_of_fixed_size_is_not_grown() -> None:
    """Theirs grew A(2..2) beyond its maximum when GPUs were left, and crashed: A(2..2), B(1..1) on 8."""
    jobs = [view(1, 2, 2), view(2, 1, 1)]
    for policy in POLICIES:
        assert counts(decide(policy, snapshot(jobs, 8)), jobs) == [2, 1]


def test_no_gpus_at_all() -> None:
    """Theirs crashed when all nodes were gone."""
    for policy in POLICIES:
        decision = decide(policy, snapshot(THREE, {}))
        assert counts(decision, THREE) == [0, 0, 0]
        assert all(decision.why()[job.id] for job in THREE)


def test_no_jobs_at_all() -> None:
    for policy in POLICIES:
        assert not decide(policy, snapshot([], 8)).grants


def test_speedups_of_any_length() -> None:
    """Their table ended at 33 GPUs, and so did growth."""
    jobs = [view(1, 1, 64, req=1)]
    for policy, factory in POLICIES.items():
        assert counts(decide(policy, snapshot(jobs, 64)), jobs) == ([64] if factory().elastic else [1])


def test_jobs_without_estimates_are_decided_like_others() -> None:
    """Theirs crashed for want of information: every estimate here is a prior."""
    jobs = [view(job, 1, 4) for job in range(1, 6)]
    for policy in POLICIES:
        assert sum(counts(decide(policy, snapshot(jobs, 4)), jobs)) == 4


def test_a_running_job_whose_minimum_exceeds_what_is_free_still_grows() -> None:
    """Theirs left two GPUs idle beside A(min 4, max 8) on 6."""
    jobs = [view(1, 4, 8, req=4)]
    assert counts(decide("elastic-tiresias", snapshot(jobs, 6)), jobs) == [6]


def test_users_priority_beyond_two_is_served() -> None:
    """Theirs put such jobs into a queue that nobody walks."""
    jobs = [view(1, 1, 1, priority=-30), view(2, 1, 1, priority=30), view(3, 1, 1, priority=7)]
    for policy in POLICIES:
        assert counts(decide(policy, snapshot(jobs, 2)), jobs) == [0, 1, 1]


class TestAfsL:
    def test_two_equal_jobs_on_two_gpus_get_one_each(self) -> None:
        """Theirs 0/2: an idle job there gets its first GPU only after the other has two."""
        jobs = [view(1, 1, 2), view(2, 1, 2)]
        assert counts(decide("afs-l", snapshot(jobs, 2)), jobs) == [1, 1]

    def test_two_equal_linear_jobs_the_shorter_pulls_ahead(self) -> None:
        # 1,1: the shorter has q = 1 > p = 1/2 of the other -> 2,1; q = 1/2, p = 1/2: no tie for the longer -> 3,1;
        # q = 1/3 < p = 1/2 -> 3,2.
        jobs = [view(1, 1, 8, rem=50), view(2, 1, 8, rem=100)]
        assert counts(decide("afs-l", snapshot(jobs, 5)), jobs) == [3, 2]

    def test_a_job_that_does_not_scale_leaves_the_rest_to_the_other(self) -> None:
        jobs = [view(1, 1, 8, rem=10, curve=(0.0, *[1.0] * 8)), view(2, 1, 8, rem=1000)]
        assert counts(decide("afs-l", snapshot(jobs, 8)), jobs) == [1, 7]


class TestFfdl:
    def test_diminishing_returns_are_shared(self) -> None:
        # Steps of sqrt: .414, .318, .268, …; of linear: 1 each. All beyond the minimums go to the linear one.
        jobs = [view(1, 1, 8, curve=power(8, 0.5)), view(2, 1, 4, curve=linear(4))]
        assert counts(decide("ffdl", snapshot(jobs, 8)), jobs) == [4, 4]

    def test_a_step_of_four_beats_three_of_one(self) -> None:
        # A: +3 for 2.0 in one step (sizes 1, 4); B: +1 for .5 each. On 3 spare GPUs A's step (2.0) beats B's (1.5).
        jobs = [view(1, sizes=(1, 4), curve=(0.0, 1.0, 1.0, 1.0, 3.0)), view(2, 1, 4, curve=(0.0, 1.0, 1.5, 2.0, 2.5))]
        assert counts(decide("ffdl", snapshot(jobs, 5)), jobs) == [4, 1]
        assert counts(decide("ffdl", snapshot(jobs, 4)), jobs) == [1, 3]

    def test_only_the_longest_prefix_is_admitted_while_gpus_are_short(self) -> None:
        jobs = [view(1, 2, 3), view(2, 3, 3), view(3, 1, 1)]
        assert counts(bare("ffdl", snapshot(jobs, 4)), jobs) == [3, 0, 0]

    def test_a_job_too_large_for_all_there_is_does_not_end_the_prefix(self) -> None:
        jobs = [view(1, 9, 9), view(2, 1, 1)]
        assert counts(bare("ffdl", snapshot(jobs, 8)), jobs) == [0, 1]


class TestElasticTiresias:
    def test_lower_queues_shrink_only_as_far_as_it_admits_waiting_jobs(self) -> None:
        old = [view(job, 1, 4, req=4, held=4, attained_gpu_s=9000.0) for job in (1, 2)]
        new = [view(job, 1, 1) for job in range(3, 15)]
        decision = bare("elastic-tiresias", snapshot([*old, *new], 8))
        # Twelve wait behind the two: the newcomers are in the top queue and are served first: 8 of them take all.
        assert counts(decision, [*old, *new]) == [0, 0, *[1] * 8, *[0] * 4]

    def test_compaction_takes_from_the_lowest_queue_and_the_latest_first(self) -> None:
        old = [view(job, 1, 3, req=3, held=3, attained_gpu_s=9000.0, first_started_s=float(job)) for job in (1, 2, 3)]
        new = [view(job, 2, 2, attained_gpu_s=9000.0, first_started_s=10.0 + job, ran_s=1e9) for job in range(4, 16)]
        decision = bare("elastic-tiresias", snapshot([*old, *new], 9))
        # All in one queue. 9 GPUs go to the three that started first; 12 wait (> 10): job 3 gives two to job 4,
        # job 2 gives two to job 5, job 1 gives two to job 6; nobody has more to give.
        assert counts(decision, [*old, *new]) == [1, 1, 1, 2, 2, 2, *[0] * 9]

    def test_ten_waiting_jobs_are_not_enough_for_compaction(self) -> None:
        old = [view(1, 1, 3, req=3, held=3, attained_gpu_s=9000.0, first_started_s=1.0)]
        new = [view(job, 2, 2, attained_gpu_s=9000.0, first_started_s=10.0 + job, ran_s=1e9) for job in range(2, 12)]
        assert counts(bare("elastic-tiresias", snapshot([*old, *new], 3)), [*old, *new]) == [3, *[0] * 10]

    def test_leftovers_go_to_the_largest_gain(self) -> None:
        jobs = [view(1, 1, 4, curve=power(4, 0.5)), view(2, 1, 4, curve=power(4, 0.9))]
        assert counts(decide("elastic-tiresias", snapshot(jobs, 5)), jobs) == [1, 4]


class TestTiresias:
    def test_attained_service_beyond_the_threshold_is_served_after_newcomers(self) -> None:
        jobs = [view(1, 1, 1, held=1, attained_gpu_s=3601.0), view(2, 1, 1)]
        assert counts(decide("tiresias", snapshot(jobs, 1)), jobs) == [0, 1]

    def test_within_a_queue_those_started_first_come_first_and_never_started_ones_after(self) -> None:
        """Theirs served never-started jobs before all others, after a round trip through its database."""
        jobs = [view(1, 1, 1), view(2, 1, 1, held=1, first_started_s=20.0), view(3, 1, 1, held=1, first_started_s=10.0)]
        assert counts(decide("tiresias", snapshot(jobs, 2)), jobs) == [0, 1, 1]
        assert counts(decide("tiresias", snapshot(jobs, 1)), jobs) == [0, 0, 1]

    def test_a_job_that_waited_long_is_promoted_and_stays_promoted(self) -> None:
        """Theirs promoted and demoted such a job every five seconds."""
        old = view(1, 1, 1, attained_gpu_s=9000.0, ran_s=100.0, waiting=801.0, first_started_s=1.0)
        other = view(2, 1, 1, held=1, attained_gpu_s=10.0, first_started_s=2.0)
        first = bare("tiresias", snapshot([old, other], 1))
        assert counts(first, [old, other]) == [1, 0]
        again = bare(
            "tiresias",
            snapshot([view(1, 1, 1, held=1, attained_gpu_s=9500.0, first_started_s=1.0), other], 1),
            first.memory,
        )
        assert counts(again, [old, other]) == [1, 0]
        later = view(1, 1, 1, held=1, attained_gpu_s=9000.0 + 3601.0, first_started_s=1.0)
        demoted = bare("tiresias", snapshot([later, other], 1), again.memory)
        assert counts(demoted, [old, other]) == [0, 1]

    def test_waiting_seven_times_as_long_is_not_enough(self) -> None:
        old = view(1, 1, 1, attained_gpu_s=9000.0, ran_s=100.0, waiting=799.0, first_started_s=1.0)
        jobs = [old, view(2, 1, 1)]
        assert counts(bare("tiresias", snapshot(jobs, 1)), jobs) == [0, 1]


class TestDrf:
    def test_the_papers_example(self) -> None:
        """9 CPUs and 18 GB; tasks of A need 1 CPU and 4 GB, those of B 3 CPUs and 1 GB: A gets three, B two."""
        jobs = [
            view(job, 1, 10, team=team, spec=worker_spec(cpus, memory_gib))
            for job, team, cpus, memory_gib in ((1, "a", 1, 4), (2, "b", 3, 1))
        ]
        taken = snapshot(jobs, 1000, cpus=9, memory_mib=18 * 1024)
        assert counts(bare("drf", taken), jobs) == [3, 2]
        assert counts(decide("drf", taken), jobs) == [3, 2]

    def test_teams_are_equal_whatever_their_number_of_jobs(self) -> None:
        jobs = [view(1, 1, 8, team="a"), view(2, 1, 8, team="b"), view(3, 1, 8, team="b"), view(4, 1, 8, team="b")]
        assert counts(decide("drf", snapshot(jobs, 12)), jobs) == [6, 2, 2, 2]

    def test_a_job_with_twice_the_weight_gets_twice_as_much_in_its_team(self) -> None:
        jobs = [view(1, 1, 8, weight=2.0), view(2, 1, 8)]
        assert counts(decide("drf", snapshot(jobs, 9)), jobs) == [6, 3]


def worker_spec(cpus: int, memory_gib: int) -> JobSpec:
    return JobSpec(
        name="tasks",
        command=("true",),
        gpus=GpuRequest(min=1, max=10),
        cpus=cpus,
        memory_mib=memory_gib * 1024,
        launcher=Launcher.PER_GPU,
        uses_library=True,
    )


class TestOptimus:
    def test_each_gpu_goes_where_it_saves_most_time(self) -> None:
        # Linear speeds. Of 100 s the 2nd GPU saves 50 s, the 3rd 16.7; of 40 s it is 20 and 6.7. So: 50, 20, 16.7.
        jobs = [view(1, 1, 4, rem=100), view(2, 1, 4, rem=40)]
        assert counts(decide("optimus", snapshot(jobs, 3)), jobs) == [2, 1]
        assert counts(decide("optimus", snapshot(jobs, 4)), jobs) == [2, 2]
        assert counts(decide("optimus", snapshot(jobs, 5)), jobs) == [3, 2]

    def test_minimums_by_submission_come_first(self) -> None:
        jobs = [view(1, 2, 4, rem=1), view(2, 2, 4, rem=1000)]
        assert counts(decide("optimus", snapshot(jobs, 3)), jobs) == [3, 0]
