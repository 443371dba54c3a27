"""The default policy: what it gives, what it leaves alone, and what it says about it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from swell.core.decision import ReasonCode
from swell.core.resources import Gpu, Node
from swell.core.snapshot import JobView, Options, Snapshot
from swell.policy.swell import Swell
from unit.policy.views import NOW_S, bare, counts, decide, linear, power, snapshot, view

SATURATED = (0.0, 1.0, 1.5, 1.5, 1.5)


def codes(taken: Snapshot, job: JobView) -> list[ReasonCode]:
    return [reason.code for reason in bare("swell", taken).why().get(job.id, ())]


def test_with_linear_speedup_the_shortest_gets_all_it_can_use() -> None:
    jobs = [view(1, 1, 8, rem=5000), view(2, 1, 8, rem=500), view(3, 1, 8, rem=9000)]
    assert counts(bare("swell", snapshot(jobs, 8)), jobs) == [0, 8, 0]


def test_equal_power_law_jobs_are_served_much_as_by_hesrpt() -> None:
    # heSRPT for S(n) = √n gives the k-th longest of M jobs (k² − (k − 1)²) / M² of the GPUs: here 1/9, 3/9 and 5/9.
    free: dict[str, Any] = {"curve": power(36, 0.5), "at": NOW_S, "restart_cost_s": 0.0}
    jobs = [view(1, 1, 36, rem=9000, **free), view(2, 1, 36, rem=3000, **free), view(3, 1, 36, rem=500, **free)]
    given = counts(bare("swell", snapshot(jobs, 36, Options(policy={"price": 1.0, "arrivals": 0.0}))), jobs)
    assert sum(given) == 36
    assert all(abs(got - optimal) <= 3 for got, optimal in zip(given, (4, 12, 20), strict=True))


def test_a_job_gets_no_gpu_that_brings_it_nothing() -> None:
    jobs = [view(1, 1, 4, curve=SATURATED)]
    taken = snapshot(jobs, 4)
    assert counts(bare("swell", taken), jobs) == [2]
    assert codes(taken, jobs[0]) == [ReasonCode.NO_GAIN]


def test_a_running_job_that_wants_no_more_is_not_told_that_more_is_not_worth_it() -> None:
    jobs = [view(number, 1, 8, held=2, rem=9000.0, curve=power(8, 0.5)) for number in (1, 2)]
    taken = snapshot(jobs, 4)
    assert counts(decide("swell", taken), jobs) == [2, 2]
    told = [reason.detail for why in decide("swell", taken).why().values() for reason in why]
    assert [detail for detail in told if detail.get("gain_s") == 0.0] == []


def test_minimums_are_respected_and_what_does_not_fit_goes_to_others() -> None:
    jobs = [view(1, 6, 8, rem=10), view(2, 6, 8, rem=20), view(3, 1, 2, rem=9000)]
    assert counts(bare("swell", snapshot(jobs, 8)), jobs) == [8, 0, 0] or counts(
        bare("swell", snapshot(jobs, 8)), jobs
    ) == [6, 0, 2]


def test_a_size_that_crosses_nodes_for_nothing_is_never_bought() -> None:
    across = (0.0, 1.0, 2.0, 3.0, 4.0, 4.0, 4.2, 5.0, 7.0)
    nodes = tuple(Node(name=f"n{i}", gpus=tuple(Gpu(index=k) for k in range(4))) for i in range(3))
    jobs = [view(1, 1, 8, rem=9000, curve=across), view(2, 1, 8, rem=9100, curve=across)]
    taken = replace(snapshot(jobs, 12), nodes=nodes)
    assert sorted(counts(bare("swell", taken), jobs)) == [4, 8]


def test_near_its_end_a_job_is_left_alone() -> None:
    curve = power(8, 0.9)
    ending = view(1, 1, 8, rem=60, curve=curve, held=4)
    fresh = view(1, 1, 8, rem=60_000, curve=curve, held=4)
    assert counts(bare("swell", snapshot([ending], 8)), [ending]) == [4]
    assert counts(bare("swell", snapshot([fresh], 8)), [fresh]) == [8]
    assert codes(snapshot([ending], 8), ending) == [ReasonCode.NOT_WORTH]


def test_a_job_that_scales_in_place_is_resized_freely() -> None:
    job = view(1, 1, 8, rem=60, curve=power(8, 0.9), held=4, restart_cost_s=0.0)
    assert counts(bare("swell", snapshot([job], 8)), [job]) == [8]


def test_a_running_job_gives_way_to_a_much_shorter_one() -> None:
    jobs = [view(1, 1, 4, rem=50_000, held=4), view(2, 1, 4, rem=600)]
    assert counts(bare("swell", snapshot(jobs, 4)), jobs)[1] > 0


def test_the_waiting_are_told_who_is_ahead_and_what_is_free() -> None:
    jobs = [view(1, 4, 4, rem=100), view(2, 4, 4, rem=200), view(3, 4, 4, rem=300)]
    decision = bare("swell", snapshot(jobs, 6))
    assert counts(decision, jobs) == [4, 0, 0]
    behind, room = decision.why()[3]
    assert (behind.code, behind.detail) == (ReasonCode.BEHIND, {"ahead": 2, "first": 1})
    assert (room.code, room.detail) == (ReasonCode.CAPACITY, {"needs": 4, "free": 2})


def test_never_said_to_be_behind_a_job_on_gpus_it_cannot_use() -> None:
    a, t = ("a100",), ("t4",)
    jobs = [
        *(view(1, 4, 4, rem=100, types=a), view(2, 2, 2, rem=900, types=t), view(3, 4, 4, rem=300, types=a)),
        *(view(4, 2, 2, rem=3000, types=t), view(5, 2, 2, rem=9000, types=(*a, *t)), view(6, 4, 4, rem=9500, types=a)),
    ]
    decision = bare("swell", snapshot(jobs, {"a100": 4, "t4": 2}))
    assert counts(decision, jobs) == [4, 2, 0, 0, 0, 0]
    behind = {job: decision.why()[job][0].detail for job in (3, 4, 5, 6)}
    assert behind == {
        3: {"ahead": 1, "first": 1},
        4: {"ahead": 1, "first": 2},
        5: {"ahead": 4, "first": 1},
        6: {"ahead": 3, "first": 1},
    }


def test_where_nobody_has_gpus_of_its_type_it_is_only_room_that_is_missing() -> None:
    jobs = [view(1, 4, 4, types=("a100",)), view(2, 4, 4, types=("t4",))]
    decision = bare("swell", snapshot(jobs, {"a100": 4, "t4": 2}))
    assert counts(decision, jobs) == [4, 0]
    assert [(r.code, r.detail) for r in decision.why()[2]] == [(ReasonCode.CAPACITY, {"needs": 4, "free": 2})]


def test_jobs_without_a_gpu_and_with_a_share_of_one_run_beside_the_others() -> None:
    jobs = [view(1, 1, 1, milli=0), view(2, 1, 1, milli=250), view(3, 1, 1, milli=500), view(4, 1, 1)]
    decision = bare("swell", snapshot(jobs, 2))
    assert counts(decision, jobs) == [1, 1, 1, 1]
    assert decision.grants[1].gpu_type == ""


def test_never_more_shares_than_a_gpu_has() -> None:
    jobs = [view(i, 1, 1, milli=400) for i in range(1, 6)]
    assert sum(counts(bare("swell", snapshot(jobs, 1)), jobs)) == 2


def test_each_job_goes_to_the_type_where_it_gains_most() -> None:
    slow, fast = linear(4), tuple(4.0 * k for k in range(5))
    same = tuple(1.2 * k for k in range(5))
    jobs = [
        view(1, 4, 4, rem=4000, curves={"a100": fast, "t4": slow}, types=("a100", "t4")),
        view(2, 4, 4, rem=4000, curves={"a100": same, "t4": slow}, types=("a100", "t4")),
    ]
    grants = bare("swell", snapshot(jobs, {"a100": 4, "t4": 4})).grants
    assert [grants[1].gpu_type, grants[2].gpu_type] == ["a100", "t4"]


def test_the_job_that_gains_most_from_the_fast_type_gets_it_though_both_are_faster_there() -> None:
    def job(number: int, factor: float) -> JobView:
        fast = tuple(factor * k for k in range(5))
        return view(number, 4, 4, rem=4000 * factor, curves={"a100": fast, "t4": linear(4)}, types=("a100", "t4"))

    for first, second in ((8.0, 2.0), (2.0, 8.0)):  # each as long as the other where it is fastest
        grants = bare("swell", snapshot([job(1, first), job(2, second)], {"a100": 4, "t4": 4})).grants
        assert grants[1 if first > second else 2].gpu_type == "a100"
        assert grants[2 if first > second else 1].gpu_type == "t4"


def moved(faster: float, *, held: int = 4, rem: float = 1e6, **more: Any) -> str:
    """The type that a running job gets that would be so much faster on the other one, which is idle."""
    curves = {"a100": tuple(faster * k for k in range(5)), "t4": linear(4)}
    more = {"at": NOW_S} | more  # it came just now: nobody is late
    job = view(1, 4, 4, rem=rem, curves=curves, types=("a100", "t4"), held=held, held_type="t4", **more)
    return bare("swell", snapshot([job], {"a100": 4, "t4": 4})).grants[1].gpu_type


def test_a_job_moves_to_another_type_for_a_gain_that_lasts_not_for_a_small_one() -> None:
    # 30 s of restart in the 600 s that a size is expected to last: 5 % for a new size, three times that for a new type
    assert [moved(1.10), moved(1.25)] == ["t4", "a100"]
    assert moved(1.01, restart_cost_s=0.0) == "a100"
    assert moved(1.01, held=0) == "a100"


def test_a_job_that_ends_before_it_would_be_moved_back_pays_less_for_a_move() -> None:
    # On the other type it has 352 s to go at 5.68, of which 90 s of restarts leave 4.52. Where it is: 4, and 5 % for
    # staying. A tenth for the way back and for others would be too much; 352 of 600 s of that are not.
    assert moved(1.42, rem=2000.0) == "a100"
    assert moved(1.30, rem=2000.0) == "t4"


def test_a_job_that_may_not_use_a_type_is_never_given_it() -> None:
    jobs = [view(1, 1, 4, types=("t4",)), view(2, 1, 4, types=("h100",))]
    decision = decide("swell", snapshot(jobs, {"a100": 8, "t4": 2}))
    assert decision.grants[1].gpu_type == "t4"
    assert 2 not in decision.grants
    assert ReasonCode.GPU_TYPE in [reason.code for reason in decision.why()[2]]


def test_weight_and_deadline_bring_a_job_forward() -> None:
    plain = [view(1, 4, 4, rem=1000), view(2, 4, 4, rem=1100)]
    assert counts(bare("swell", snapshot(plain, 4)), plain) == [4, 0]
    heavy = [plain[0], replace(plain[1], weight=20.0)]
    assert counts(bare("swell", snapshot(heavy, 4)), heavy) == [0, 4]
    pressed = [plain[0], replace(plain[1], deadline_s=NOW_S + 290.0)]
    assert counts(bare("swell", snapshot(pressed, 4)), pressed) == [0, 4]


def test_leftovers_go_out_in_any_allowed_size() -> None:
    nodes = tuple(Node(name=f"n{i}", gpus=tuple(Gpu(index=k) for k in range(4))) for i in range(2))
    jobs = [view(1, 1, 16, rem=9000)]
    taken = replace(snapshot(jobs, 7), nodes=nodes)
    assert counts(bare("swell", taken), jobs) == [7]


def test_an_option_that_makes_no_sense_is_never_an_error() -> None:
    jobs = [view(1, 1, 8)]
    for bad in ("many", True, float("nan"), -1.0):
        taken = snapshot(jobs, 8, Options(policy={"price": bad, "restart": bad}))
        assert counts(bare("swell", taken), jobs) == [8]


@pytest.mark.parametrize("gpus", [0, 1])
def test_never_an_exception_for_odd_jobs(gpus: int) -> None:
    jobs = [
        view(1, 1, 4, curve=(0.0,)),
        view(2, 1, 4, curve=(0.0, 0.0, 0.0, 0.0, 0.0)),
        view(3, 64, 64, rem=0.0),
        view(4, 1, 1, weight=0.0),
        view(5, 1, 2, held=2, stopping=True),
        view(6, 1, 2, held=2, held_type="gone"),
        replace(view(7, 1, 1), gpu_types=()),
    ]
    decision = decide("swell", snapshot(jobs, gpus))
    assert all(job.id in decision.grants or decision.why()[job.id] for job in jobs)


def test_a_snapshot_without_jobs_or_gpus_is_fine() -> None:
    assert not bare("swell", snapshot([], 8)).grants
    assert not bare("swell", snapshot([view(1)], {})).grants


def _random_jobs(rng: random.Random, count: int, types: tuple[str, ...]) -> list[JobView]:
    jobs = []
    for i in range(count):
        low = rng.choice((1, 1, 1, 2, 4))
        high = low * rng.choice((1, 2, 8))
        held = rng.choice((0, low, high))
        curves = {t: tuple(rng.uniform(0.5, 3) * y for y in power(high, rng.uniform(0.2, 1))) for t in types}
        rising = {t: tuple(max(c[: k + 1]) for k in range(len(c))) for t, c in curves.items()}
        rem = rng.lognormvariate(7, 2)
        jobs.append(view(i + 1, low, high, rem=rem, curves=rising, types=types, held=held, held_type=rng.choice(types)))
    return jobs


@pytest.mark.parametrize("types", [("gpu",), ("a", "b", "c")])
def test_never_more_than_there_is_and_never_another_answer(types: tuple[str, ...]) -> None:
    rng = random.Random(7)
    policy = Swell()  # one object for all: what it caches must not change an answer
    for _ in range(60):
        jobs = _random_jobs(rng, rng.randrange(1, 30), types)
        taken = snapshot(jobs, {t: rng.randrange(1, 40) for t in types})
        decision = policy.decide(taken, {}, rng)
        assert dict(decision.grants) == dict(bare("swell", taken).grants)
        for gpu_type in types:
            given = sum(grant.n for grant in decision.grants.values() if grant.gpu_type == gpu_type)
            assert given <= taken.capacity.gpus(gpu_type)
        for job in jobs:
            if job.id in decision.grants:
                assert decision.grants[job.id].n in job.sizes
            else:
                assert decision.why()[job.id]


def test_nothing_is_left_idle_that_a_waiting_job_could_take() -> None:
    rng = random.Random(11)
    for _ in range(60):
        jobs = _random_jobs(rng, rng.randrange(1, 20), ("a", "b"))
        taken = snapshot(jobs, {"a": rng.randrange(1, 30), "b": rng.randrange(1, 30)})
        decision = bare("swell", taken)
        for gpu_type in ("a", "b"):
            given = sum(grant.n for grant in decision.grants.values() if grant.gpu_type == gpu_type)
            idle = taken.capacity.gpus(gpu_type) - given
            assert not [job.id for job in jobs if job.id not in decision.grants and job.min <= idle]


def test_a_job_that_was_kept_waiting_goes_before_one_that_was_not() -> None:
    late = view(1, 4, 4, rem=1100, at=NOW_S - 5000, waiting=5000)
    fresh = view(2, 4, 4, rem=1000, at=NOW_S)
    assert counts(bare("swell", snapshot([late, fresh], 4)), [late, fresh]) == [4, 0]
    blind = snapshot([late, fresh], 4, Options(policy={"fairness": 0.0}))
    assert counts(bare("swell", blind), [late, fresh]) == [0, 4]


def test_where_all_are_as_late_nobody_is_helped() -> None:
    """Lateness is measured by that of the median job: the shortest goes first, as if nobody were late."""
    long = view(1, 4, 4, rem=1100, at=NOW_S - 660, waiting=660)
    short = view(2, 4, 4, rem=1000, at=NOW_S - 400, waiting=400)
    for options in (Options(), Options(policy={"fairness": 0.0})):
        assert counts(bare("swell", snapshot([long, short], 4, options)), [long, short]) == [0, 4]


def test_a_late_job_moves_to_another_type_for_less() -> None:
    # It came a quarter of an hour ago and has done nothing.
    assert moved(1.30, rem=2000.0, at=NOW_S - 900) == "a100"
    assert moved(1.01, rem=2000.0, at=NOW_S - 900) == "t4"


def test_a_short_job_is_not_left_on_a_slow_type_for_the_sake_of_one_that_gains_more_on_the_fast_one() -> None:
    types = ("a100", "t4")
    fast, faster = tuple(3.5 * k for k in range(9)), tuple(80.0 * k for k in range(9))
    # Half of the fast type takes the short one 286 s and a start, all of the slow one 500 s: 1.7 times that.
    short = view(1, 8, 8, rem=4000, curves={"a100": fast, "t4": linear(8)}, types=types, at=NOW_S)
    long = view(2, 8, 8, rem=400_000, curves={"a100": faster, "t4": linear(8)}, types=types, at=NOW_S)

    def on_fast(**policy: float) -> int:
        grants = bare("swell", snapshot([short, long], {"a100": 8, "t4": 8}, Options(policy=policy))).grants
        return next(job for job, given in grants.items() if given.gpu_type == "a100")

    assert on_fast() == 1
    assert on_fast(promise=1000.0) == 2


def test_a_job_that_has_outlived_its_estimate_is_not_about_to_end_for_ever() -> None:
    """Most of an hour after it should have ended it is expected to go on for as long, and a larger size pays."""
    more: dict[str, Any] = {"rem": 400.0, "curve": power(8, 0.9), "held": 4, "rate_now": 3.5}
    on_time = view(1, 1, 8, **more)
    over = view(1, 1, 8, as_of_s=NOW_S - 3600, **more)
    assert counts(bare("swell", snapshot([on_time], 8)), [on_time]) == [4]
    assert counts(bare("swell", snapshot([over], 8)), [over]) == [8]


def test_a_costly_restart_makes_a_job_keep_its_size() -> None:
    curve = (0.0, 1.0, 2.0, 3.0, 4.0, 4.1, 4.2, 4.3, 4.4)
    cheap = view(1, 1, 8, rem=90_000, curve=curve, held=4, restart_cost_s=1.0)
    dear = view(1, 1, 8, rem=90_000, curve=curve, held=4, restart_cost_s=250.0)
    assert counts(bare("swell", snapshot([cheap], 8)), [cheap]) == [8]
    assert counts(bare("swell", snapshot([dear], 8)), [dear]) == [4]


def test_efficiency_goes_from_least_mean_to_most_work_per_gpu() -> None:
    # A second GPU brings the short job 0.6 of the first, the long one 0.9.
    short = view(1, 1, 2, rem=100.0, curve=(0.0, 1.0, 1.6), restart_cost_s=0.0, at=NOW_S)
    long = view(2, 1, 2, rem=100_000.0, curve=(0.0, 1.0, 1.9), restart_cost_s=0.0, at=NOW_S)

    def given(efficiency: float) -> list[int]:
        options = Options(policy={"efficiency": efficiency})
        return counts(bare("swell", snapshot([short, long], 3, options)), [short, long])

    assert given(1.0) == [1, 2]
    assert given(0.0) == [2, 1]


def test_a_wide_job_never_goes_before_short_ones_that_would_delay_it_for_less_long() -> None:
    """The wide one would bring more per second, but the short one keeps it waiting for a minute only."""
    jobs = [view(1, 16, 16, rem=2 * 3600.0 * 16), view(2, 1, 1, rem=300.0)]
    assert counts(decide("swell", snapshot(jobs, 16)), jobs) == [0, 1]


def test_a_wide_job_goes_before_long_ones_that_would_keep_it_waiting() -> None:
    jobs = [view(1, 16, 16, rem=600.0 * 16), view(2, 1, 4, rem=40 * 3600.0)]
    assert counts(decide("swell", snapshot(jobs, 16)), jobs) == [16, 0]


def test_a_job_that_nobody_disturbs_grows_for_a_gain_that_pays_a_restart_only_in_the_long_run() -> None:
    curve = (0.0, *(min(n, 8) * 0.8 for n in range(1, 16)), 8 * 0.8 * 1.03)
    for undisturbed_s, n in ((60.0, 8), (7200.0, 16)):
        job = view(1, 1, 16, curve=curve, held=8, rem=1e6, restart_cost_s=30.0, changed_s=NOW_S - undisturbed_s)
        assert counts(decide("swell", snapshot([job], 16)), [job]) == [n]
