"""Layers around every policy: kept runs, priority classes, quotas, starvation, restart cost, reasons."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from swell.core.decision import Decision, Grant, Reason, ReasonCode
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Gpu, Node, NodeCondition, Part, Share
from swell.core.snapshot import Options, Quota, Snapshot, capacity_of
from swell.core.unsaved import Unsaved
from swell.plan.explain import sentence
from swell.policy import layers, quotas
from swell.policy.base import Purse
from swell.policy.ledger import Ledger
from swell.policy.registry import POLICIES
from unit.policy.views import NOW_S, Inelastic, counts, decide, power, snapshot, view

LONG_S = Options().starvation_s + 3600.0
UNSTOPPABLE = JobSpec(name="fixed", command=("true",))


def codes(decision: Decision, job: int) -> list[ReasonCode]:
    return [reason.code for reason in decision.why().get(job, ())]


class TestKept:
    def test_never_touches_a_run_that_cannot_resume(self) -> None:
        jobs = [view(1, 1, 8, held=5, pinned=True, spec=UNSTOPPABLE), view(2, 1, 8, priority=20)]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, 8))
            assert decision.grants[1] == Grant(n=5, gpu_type="gpu")
            assert codes(decision, 1) == [ReasonCode.PINNED]
            assert decision.grants[2].n <= 3

    def test_a_run_that_changed_a_moment_ago_is_left_alone(self) -> None:
        jobs = [view(1, 1, 8, held=2, changed_s=NOW_S - 3.0, restart_cost_s=0.0)]
        decision = decide("elastic-fifo", snapshot(jobs, 8))
        assert counts(decision, jobs) == [2]
        assert decision.why()[1][0].detail == {"until_s": NOW_S + 7.0}
        assert decision.wake_s == NOW_S + 7.0

    def test_a_policy_of_ones_own_says_when_to_ask_it_again(self) -> None:
        class Later(Inelastic):
            def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: object) -> Decision:
                return Decision(grants={}, wake_s=snapshot.now_s + 60.0)

        jobs = [view(1), view(2, held=1, changed_s=NOW_S - 3.0)]
        assert layers.decide(Later(), snapshot(jobs[:1], 8), {}, random.Random(0)).wake_s == NOW_S + 60.0
        assert layers.decide(Later(), snapshot(jobs, 8), {}, random.Random(0)).wake_s == NOW_S + 7.0

    def test_but_not_when_a_job_of_a_higher_class_waits(self) -> None:
        jobs = [view(1, 1, 8, held=8, changed_s=NOW_S - 3.0), view(2, 4, 4, priority=10)]
        assert counts(decide("elastic-fifo", snapshot(jobs, 8)), jobs) == [4, 4]

    def test_a_run_on_a_cordoned_node_stays_and_takes_nothing_from_others(self) -> None:
        gpus = tuple(Gpu(index=i) for i in range(4))
        nodes = (Node(name="n1", gpus=gpus, condition=NodeCondition.CORDONED), Node(name="n2", gpus=gpus))
        jobs = (view(1, 1, 8, held=3), view(2, 4, 4))
        taken = Snapshot(now_s=NOW_S, jobs=jobs, nodes=nodes, capacity=capacity_of(nodes))
        assert counts(decide("elastic-fifo", taken), jobs) == [3, 4]

    @pytest.mark.parametrize(("node", "left"), [("n1", 1), ("n2", 0)])
    def test_so_does_a_share_of_a_gpu_of_a_cordoned_node(self, node: str, left: int) -> None:
        """On an open one it takes its part of what there is, and no more."""
        nodes = (
            Node(name="n1", gpus=(Gpu(index=0),), condition=NodeCondition.CORDONED),
            Node(name="n2", gpus=(Gpu(index=0),)),
        )
        share = Allocation(parts=(Part(node=node, gpus=(0,)),), gpu_type="gpu", share=Share(milli=250, memory_mib=0))
        jobs = (view(1, held=1, milli=250, allocation=share, pinned=True), view(2, 1, 1), view(3, milli=700))
        taken = Snapshot(now_s=NOW_S, jobs=jobs, nodes=nodes, capacity=capacity_of(nodes))
        for policy in POLICIES:
            assert counts(decide(policy, taken), jobs) == [1, left, 1 - left]


class TestPriority:
    def test_a_higher_class_comes_first_and_the_rest_goes_to_the_lower(self) -> None:
        jobs = [view(1, 1, 8), view(2, 1, 4, priority=10)]
        assert counts(decide("elastic-fifo", snapshot(jobs, 6)), jobs) == [2, 4]

    def test_a_higher_class_preempts(self) -> None:
        jobs = [view(1, 4, 4, held=4), view(2, 4, 4, priority=10)]
        for policy in POLICIES:
            assert counts(decide(policy, snapshot(jobs, 4)), jobs) == [0, 4]


class TestQuotas:
    OPTIONS = Options(quotas={"a": Quota(gpus=4), "b": Quota(gpus=4)})

    def test_a_team_borrows_what_nobody_else_wants(self) -> None:
        jobs = [view(job, 1, 1, team="a") for job in range(1, 9)]
        assert sum(counts(decide("fifo", snapshot(jobs, 8, self.OPTIONS)), jobs)) == 8

    def test_borrowed_gpus_are_given_back(self) -> None:
        jobs = [view(job, 1, 1, team="a", held=1) for job in range(1, 9)] + [view(9, 3, 3, team="b")]
        decision = decide("fifo", snapshot(jobs, 8, self.OPTIONS))
        assert counts(decision, jobs) == [1, 1, 1, 1, 1, 0, 0, 0, 3]
        assert codes(decision, 8)[0] is ReasonCode.QUOTA
        assert decision.why()[8][0].detail == {"team": "a", "quota": 4, "used": 5}

    def test_growth_beyond_the_quota_ends_when_another_team_waits(self) -> None:
        """Tiresias gives what is asked for; the second job of team b waits behind it."""
        options = Options(quotas={"a": Quota(gpus=4), "b": Quota(gpus=6)})
        jobs = [view(1, 1, 8, req=8, team="a", attained_gpu_s=1.0), view(2, 2, 2, team="b")]
        assert counts(decide("elastic-tiresias", snapshot(jobs, 8, options)), jobs) == [6, 2]

    def test_a_team_that_may_not_borrow_is_always_held_to_its_quota(self) -> None:
        options = Options(quotas={"a": Quota(gpus=3, borrow=False)})
        for policy, factory in POLICIES.items():
            jobs = [view(1, 1, 8, team="a"), view(2, 2, 2, team="a")]
            got = counts(decide(policy, snapshot(jobs, 8, options)), jobs)
            assert sum(got) <= 3
            assert not factory().elastic or sum(got) == 3

    def test_a_job_larger_than_its_quota_runs_on_what_is_borrowed(self) -> None:
        jobs = [view(1, 6, 6, team="a"), view(2, 1, 1, team="b")]
        for policy in POLICIES:
            assert counts(decide(policy, snapshot(jobs, 8, self.OPTIONS)), jobs) == [6, 1]

    def test_who_turns_out_to_be_within_the_quota_takes_back_what_others_borrow(self) -> None:
        """Job 4 uses up its team's quota on paper and finds no room: job 5 is within it after all."""
        options = Options(quotas={"a": Quota(gpus=0), "b": Quota(gpus=4)})
        jobs = [
            view(1, 3, 3, held=3, rem=1.0),
            view(2, milli=700, team="a", held=1, rem=10.0),
            view(3, milli=700, team="a", held=1, rem=10.0),
            view(4, 4, 4, team="b"),
            view(5, milli=700, team="b", rem=1e6),
        ]
        for policy in sorted(POLICIES.keys() - {"sia"}):  # sia lets job 4 in, instead of job 1
            decision = decide(policy, snapshot(jobs, 5, options))
            assert counts(decision, jobs) == [3, 1, 0, 0, 1], policy
            assert codes(decision, 3)[0] is ReasonCode.QUOTA

    def test_a_job_let_in_beyond_the_quota_does_not_pass_one_with_a_right(self) -> None:
        """Job 2 grew; what it gives back is for job 4, not for job 1 of its own team, which would be beyond again."""
        options = Options(quotas={"a": Quota(gpus=5), "b": Quota(gpus=8)})
        jobs = [
            view(1, 2, 2, team="a", rem=1e6),
            view(2, sizes=(2, 4, 6), team="a", held=6, rem=1e-3, restart_cost_s=3600.0),
            view(3, 1, 1, held=1, rem=1.0),
            view(4, 1, 1, team="b", rem=1e7),
        ]
        assert counts(decide("swell", snapshot(jobs, 7, options)), jobs)[1:] == [4, 1, 1]

    @pytest.mark.parametrize(("mib", "expected"), [(500, [1, 0, 1]), (1000, [1, 1, 0])])
    def test_nothing_is_taken_back_for_a_job_that_lacks_memory_anyhow(self, mib: int, expected: list[int]) -> None:
        options = Options(quotas={"a": Quota(gpus=1), "b": Quota(gpus=1)})
        small, other = (JobSpec(name="j", command=("true",), memory_mib=size) for size in (500, mib))
        jobs = [view(1, team="a", spec=small), view(2, team="a", spec=small), view(3, team="b", spec=other)]
        taken = snapshot(jobs, 2, options, memory_mib=1000)
        ledger = Ledger(taken)
        assert all(ledger.give(job, Grant(n=1, gpu_type="gpu")) for job in jobs[:2])
        quotas.take_back(jobs, ledger, taken, elastic=True)
        assert [int(job.id in ledger.grants) for job in jobs] == expected
        assert ledger.used["a"] == 1000 * sum(expected[:2])


class InOrder(Inelastic):
    """First in, first out, not elastic: nobody passes a job that waits for room, and at most `most` of one team run."""

    def __init__(self, most: int = 1000, team: str = "a") -> None:
        self.most, self.team = most, team

    def decide(self, taken: Snapshot, memory: Mapping[str, object], rng: object) -> Decision:
        purse, grants, reasons = Purse(taken.capacity), dict[int, Grant](), dict[int, tuple[Reason, ...]]()
        running = sum(job.team == self.team for job in taken.served)
        for job in taken.jobs:
            best = purse.best_type(job, job.requested)
            if best is None or reasons or (job.team == self.team and running >= self.most):
                reasons[job.id] = (Reason(code=ReasonCode.BEHIND),)
            else:
                running += job.team == self.team
                purse.take(job, job.requested, best)
                grants[job.id] = Grant(n=job.requested, gpu_type=best)
        return Decision(grants=grants, reasons=reasons, memory=memory)


class TestJobsThatAPolicyHoldsBack:
    """A policy that is not elastic may leave GPUs idle: the layers never hand them to a job that it holds back."""

    MANY = Options(quotas={"a": Quota(gpus=16)})

    def test_never_starts_a_job_behind_one_that_waits_for_room(self) -> None:
        jobs = [view(1, 4, 4, team="a"), view(2, 8, 8, team="a"), view(3, team="a")]
        for options in (Options(), self.MANY):
            decision = layers.decide(InOrder(), snapshot(jobs, 8, options), {}, random.Random(0))
            assert counts(decision, jobs) == [4, 0, 0]
            assert codes(decision, 3) == [ReasonCode.BEHIND]

    def test_never_starts_more_than_the_policy_lets_run(self) -> None:
        jobs = [view(number, team="a") for number in (1, 2, 3)]
        for options in (Options(), self.MANY, Options(quotas={"a": Quota(gpus=1)})):
            decision = layers.decide(InOrder(most=2), snapshot(jobs, 8, options), {}, random.Random(0))
            assert counts(decision, jobs) == [1, 1, 0]

    def test_never_takes_back_what_is_borrowed_for_a_job_that_the_policy_holds_back(self) -> None:
        options = Options(quotas={"a": Quota(gpus=1), "b": Quota(gpus=4)})
        jobs = [*(view(number, team="a", held=1) for number in (1, 2, 3)), view(4, team="b"), view(5, team="b")]
        for most, expected in ((1, [1, 1, 1, 1, 0]), (2, [1, 1, 0, 1, 1])):
            decision = layers.decide(InOrder(most, team="b"), snapshot(jobs, 4, options), {}, random.Random(0))
            assert counts(decision, jobs) == expected

    def test_never_takes_back_for_a_job_behind_one_that_waits_for_room(self) -> None:
        """Job 3 lacks room even if team a gave back its loan, so job 4 behind it has to wait too."""
        options = Options(quotas={"a": Quota(gpus=1), "b": Quota(gpus=5)})
        jobs = [view(1, team="a", held=1), view(2, team="a", held=1), view(3, 4, 4, team="b"), view(4, team="b")]
        decision = layers.decide(InOrder(), snapshot(jobs, 4, options), {}, random.Random(0))
        assert counts(decision, jobs) == [1, 1, 0, 0]

    @pytest.mark.parametrize(("most", "expected"), [(1, [1, 0]), (2, [1, 1])])
    def test_what_an_undone_move_leaves_goes_to_a_job_that_the_policy_starts(
        self, most: int, expected: list[int]
    ) -> None:
        """Job 1 stays on GPU type a: the move is not worth its restart. Type b is free again."""
        curves = {"a": (0.0, 1.0), "b": (0.0, 1.1)}
        moves = view(1, types=("a", "b"), held=1, held_type="a", curves=curves, rem=100.0, team="a")
        jobs = [moves, view(2, types=("b",), team="a")]
        for options in (Options(), self.MANY):
            decision = layers.decide(
                InOrder(most=most), snapshot(jobs, {"a": 1, "b": 1}, options), {}, random.Random(0)
            )
            assert counts(decision, jobs) == expected
            assert decision.grants[1].gpu_type == "a"

    def test_what_is_left_passes_a_job_that_lacks_memory(self) -> None:
        curves = {"a": (0.0, 1.0), "b": (0.0, 1.1)}
        specs = [JobSpec(name="j", command=("true",), memory_mib=mib, uses_library=True) for mib in (0, 600, 600, 100)]
        jobs = [
            view(1, types=("a", "b"), held=1, held_type="a", curves=curves, rem=100.0, spec=specs[0]),
            *(view(number, types=("b",), spec=specs[number - 1]) for number in (2, 3, 4)),
        ]
        decision = decide("fifo", snapshot(jobs, {"a": 1, "b": 2}, memory_mib=1000))
        assert counts(decision, jobs) == [1, 1, 0, 1]


class TestStarvation:
    def test_a_job_passed_over_for_too_long_goes_ahead_and_the_reason_says_so(self) -> None:
        jobs = [view(1, 4, 4, rem=1e6, waiting=LONG_S), *(view(job, 1, 1, rem=10.0) for job in range(2, 8))]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, 4))
            assert counts(decision, jobs) == [4, 0, 0, 0, 0, 0, 0]
            assert decision.why()[1][0].code is ReasonCode.STARVED
            assert decision.why()[1][0].detail == {"waited_s": LONG_S}

    def test_it_keeps_what_it_got_for_a_while_and_not_for_ever(self) -> None:
        others = [view(job, 1, 1, rem=10.0) for job in range(2, 8)]
        first = decide("srjf", snapshot([view(1, 4, 4, rem=1e6, waiting=LONG_S), *others], 4))
        running = view(1, 4, 4, rem=1e6, held=4)
        assert counts(decide("srjf", snapshot([running, *others], 4), first.memory), [running]) == [4]
        late: Mapping[str, object] = {"rescued": {"1": NOW_S - 1.0}}
        again = decide("srjf", snapshot([running, *others], 4), late)
        assert counts(again, [running]) == [0]
        assert not again.memory["rescued"]

    def test_inside_its_class_only(self) -> None:
        jobs = [view(1, 1, 1, waiting=LONG_S), view(2, 1, 1, priority=10)]
        for policy in POLICIES:
            assert counts(decide(policy, snapshot(jobs, 1)), jobs) == [0, 1]

    def test_a_large_one_is_not_kept_out_by_a_stream_of_jobs_that_cannot_be_stopped(self) -> None:
        holder = view(1, 2, 2, held=2, pinned=True, spec=UNSTOPPABLE)
        jobs = [holder, view(2, 4, 4, waiting=LONG_S), view(3, 1, 1, spec=UNSTOPPABLE), view(4, 1, 1)]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, 4))
            assert counts(decision, jobs) == [2, 0, 0, 1]
            assert decision.why()[3][0].code is ReasonCode.BEHIND
            assert decision.why()[3][0].detail["first"] == 2


class TestRestartCost:
    def test_growth_that_costs_more_than_it_brings_is_not_made(self) -> None:
        # 40 s left at speed 1 on 4 GPUs is 10 s; on 8 it is 5 s: five seconds saved for a restart of thirty.
        jobs = [view(1, 1, 8, held=4, rem=40.0, restart_cost_s=30.0)]
        decision = decide("elastic-fifo", snapshot(jobs, 8))
        assert counts(decision, jobs) == [4]
        assert decision.why()[1][0].code is ReasonCode.NOT_WORTH
        assert decision.why()[1][0].detail == {"cost_s": 30.0, "gain_s": 5.0}

    @pytest.mark.parametrize("policy", ["elastic-fifo", "swell"])
    def test_growth_waits_until_a_checkpoint_is_near(self, policy: str) -> None:
        saved_s = NOW_S - 60.0
        far = view(1, 1, 2, held=1, rem=2000.0, unsaved=Unsaved(since_s=saved_s, every_s=3600.0))
        near = replace(far, unsaved=Unsaved(since_s=saved_s, every_s=70.0))
        decision = decide(policy, snapshot([far], 2))
        assert decision.grants[1].n == 1
        assert decision.why()[1][0].detail["wait_s"] == 3540.0
        assert decide(policy, snapshot([near], 2)).grants[1].n == 2

    def test_of_two_alike_the_one_nearer_to_its_checkpoint_makes_room(self) -> None:
        """Whichever of the two that is, and if it is not known when: the one with less to lose."""
        for first, second in (((600.0, 700.0), (600.0, 3600.0)), ((60.0, 0.0), (900.0, 0.0))):
            for swapped in (False, True):
                costs = (second, first) if swapped else (first, second)
                held = [
                    view(number, held=1, rem=9000.0, unsaved=Unsaved(since_s=NOW_S - age_s, every_s=every_s))
                    for number, (age_s, every_s) in enumerate(costs, start=1)
                ]
                grants = decide("swell", snapshot([*held, view(3, rem=60.0)], 2)).grants
                assert set(grants) == {3, 1 if swapped else 2}

    def test_the_same_growth_is_made_when_much_is_left_or_it_costs_nothing(self) -> None:
        for job in (
            view(1, 1, 8, held=4, rem=4000.0, restart_cost_s=30.0),
            view(1, 1, 8, held=4, rem=40.0, restart_cost_s=0.0),
            view(1, 1, 8, held=4, rem=40.0, restart_cost_s=30.0, stopping=True),
        ):
            assert counts(decide("elastic-fifo", snapshot([job], 8)), [job]) == [8]

    def test_what_one_leaves_goes_to_another_who_gains(self) -> None:
        jobs = [view(1, 1, 4, held=2, rem=20.0, restart_cost_s=30.0), view(2, 1, 6)]
        assert counts(decide("elastic-fifo", snapshot(jobs, 8)), jobs) == [2, 6]

    def test_a_job_is_not_shrunk_for_growth_that_is_not_made(self) -> None:
        # Water-filling says 4 and 4; the second would gain little, so the first keeps its six.
        jobs = [view(1, 1, 8, held=6, rem=1e5), view(2, 1, 8, held=2, rem=10.0)]
        assert counts(decide("elastic-fifo", snapshot(jobs, 8)), jobs) == [6, 2]

    def test_a_job_is_never_shrunk_for_nobody(self) -> None:
        """Though it gains nothing from what it holds beyond that: the restart would gain nothing either."""

        class TwoForEach(Inelastic):
            elastic = True

            def decide(self, taken: Snapshot, memory: Mapping[str, object], rng: object) -> Decision:
                return Decision(grants={job.id: Grant(n=2, gpu_type="gpu") for job in taken.jobs}, memory=memory)

        job = view(1, 1, 4, held=4, rem=3600.0, restart_cost_s=30.0, curve=(0.0, 1.0, 1.9, 1.9, 1.9))
        assert counts(layers.decide(TwoForEach(), snapshot([job], 4), {}, random.Random(0)), [job]) == [4]
        wanted = [job, view(2, 2, 2)]
        assert counts(layers.decide(TwoForEach(), snapshot(wanted, 4), {}, random.Random(0)), wanted) == [2, 2]

    def test_a_small_step_is_refused_where_a_large_one_pays(self) -> None:
        # One GPU more saves 8 s of 160, four more save 40 s: the restart of 30 s pays only for the larger step.
        job = view(1, 1, 8, held=4, rem=320.0, restart_cost_s=30.0, curve=power(8, 1.0))
        assert counts(decide("elastic-fifo", snapshot([job], 5)), [job]) == [4]
        assert counts(decide("elastic-fifo", snapshot([job], 8)), [job]) == [8]

    def test_moving_to_a_slightly_faster_gpu_type_is_weighed(self) -> None:
        curves = {"a": (0.0, 1.0), "b": (0.0, 1.1)}
        short = view(1, 1, 1, types=("a", "b"), held=1, held_type="a", curves=curves, rem=100.0)
        long = view(1, 1, 1, types=("a", "b"), held=1, held_type="a", curves=curves, rem=10_000.0)
        for policy, factory in POLICIES.items():
            if not factory().weighs_restarts:  # those have their own scales
                assert decide(policy, snapshot([short], {"a": 1, "b": 1})).grants[1].gpu_type == "a"
        assert decide("srjf", snapshot([long], {"a": 1, "b": 1})).grants[1].gpu_type == "b"

    def test_never_grows_a_job_that_does_not_gain(self) -> None:
        job = view(1, 1, 8, curve=(0.0, 1.0, 1.8, *[2.0] * 6))
        for policy, factory in POLICIES.items():
            if factory().elastic:
                assert counts(decide(policy, snapshot([job], 8)), [job]) == [3]


class TestReasons:
    def test_a_job_that_no_node_could_hold_says_so(self) -> None:
        jobs = [view(1, 9, 9), view(2, 1, 1, types=())]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, 8))
            assert decision.why()[1][0].detail == {"needs": 9, "largest": 8}
            assert codes(decision, 1) == [ReasonCode.SHAPE]
            assert codes(decision, 2) == [ReasonCode.GPU_TYPE]

    def test_of_several_types_the_one_with_most_gpus_decides_whether_a_job_could_ever_run(self) -> None:
        jobs = [
            view(1, 9, 9, types=("a", "b")),
            view(2, 8, 8, types=("a", "b")),
            view(3, 8, 8, types=("b",), priority=9),
        ]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, {"a": 4, "b": 8}))
            assert decision.why()[1][0].detail == {"needs": 9, "largest": 8}, policy
            assert ReasonCode.SHAPE not in codes(decision, 2), policy

    def test_when_others_may_not_be_stopped_it_is_room_that_is_missing_never_the_type_of_gpu(self) -> None:
        jobs = [view(1, 4, 4, held=4, pinned=True), view(2, 2, 2)]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, 4))
            assert decision.why()[2][0].detail == {"needs": 2, "free": 0}, policy

    def test_when_those_of_its_type_are_in_use_it_is_room_that_is_missing_never_the_type_of_gpu(self) -> None:
        # The only two T4 belong to a more important job. Of the other type some are left, so there is a choice to make.
        jobs = [
            view(1, 2, 2, types=("t4",), priority=10),
            view(2, 1, 4, types=("a100",)),
            view(3, 1, 1, types=("t4",)),
        ]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, {"a100": 4, "t4": 2}))
            assert decision.grants[1].gpu_type == "t4", policy
            room = [reason for reason in decision.why()[3] if reason.code is not ReasonCode.BEHIND]
            assert [(r.code, r.detail) for r in room] == [(ReasonCode.CAPACITY, {"needs": 1, "free": 0})], policy

    def test_a_type_of_which_nothing_works_is_said_to_be_missing_with_its_name(self) -> None:
        spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(types=("h100", "h200")))
        jobs = [view(1, 1, 4, types=("a100",)), view(2, 1, 1, types=("h100",), spec=spec)]
        for policy in POLICIES:
            (reason,) = decide(policy, snapshot(jobs, {"a100": 4, "h100": 0})).why()[2]
            assert sentence(reason) == "none of the GPU types it accepts is available (accepts h100, h200)", policy

    def test_a_job_that_waits_for_room_says_how_much(self) -> None:
        jobs = [view(1, 3, 3), view(2, 2, 2)]
        decision = decide("fifo", snapshot(jobs, 4))
        assert decision.why()[2][0].detail == {"needs": 2, "free": 1}


class TestJobsThatAreNotWholeGpus:
    def test_shares_and_jobs_without_gpus_go_through_the_same_order(self) -> None:
        jobs = [view(1, milli=600), view(2, milli=600), view(3, milli=0, types=()), view(4, 1, 1)]
        for policy in POLICIES:
            decision = decide(policy, snapshot(jobs, 2))
            assert decision.grants[3] == Grant(n=1, gpu_type="")
            got = counts(decision, jobs)
            assert got[0] * 600 + got[1] * 600 + got[3] * 1000 <= 2000
            assert sum(got) == 3


class TestPoliciesThatErr:
    """A policy of one's own cannot do harm: what is not allowed is not written down."""

    @pytest.mark.parametrize(
        "given", [Grant(n=5, gpu_type="gpu"), Grant(n=1, gpu_type="gpu"), Grant(n=4, gpu_type="b")]
    )
    def test_never_gives_what_is_not_there_or_not_allowed(self, given: Grant) -> None:
        class Wild(Inelastic):
            def decide(self, taken: Snapshot, memory: Mapping[str, object], rng: object) -> Decision:
                return Decision(grants={job.id: given for job in taken.jobs}, memory=memory)

        jobs = [view(1, 2, 8), view(2, 2, 8)]
        decision = layers.decide(Wild(), snapshot(jobs, 4), {}, random.Random(0))
        assert sum(counts(decision, jobs)) == 0
        assert decision.why()[1]


def test_what_was_remembered_of_jobs_that_are_gone_is_forgotten() -> None:
    memory = {"jobs": {"1": {"service_s": 5.0}, "99": {"service_s": 5.0}}}
    decision = decide("tiresias", snapshot([view(1, 1, 1)], 4), memory)
    assert decision.memory == {"jobs": {"1": {"service_s": 5.0}}}
