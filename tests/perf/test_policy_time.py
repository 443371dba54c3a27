"""How long a decision takes for 10,000 jobs on 1,000 nodes with 8 GPUs each, how that grows, and how long fits take.

CPU time, of the policy alone and with the layers around it. Half of the jobs share curves with their family, half have
curves of their own; half of them run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from figures import record
from perf.policy_growth import COUNTS
from swell.core.snapshot import Curve, Snapshot
from swell.policy.registry import POLICIES, policy_named
from unit.policy.views import NOW_S, FixedSpeed, bare, decide, snapshot, view
from unit.speed.history import History

pytestmark = pytest.mark.perf

GPUS = 8000
SOLVERS = {"ffdl", "max-min", "sia"}
FAST = sorted(set(POLICIES) - SOLVERS)
REPEATS = 34


def curve(loss: float, per_node: int = 8) -> Curve:
    """With a price for the second node: not concave there, as measured ones often are."""
    speeds = [k / (1 + loss * max(0, k - 1)) * (0.9 if k > per_node else 1.0) for k in range(17)]
    return tuple(max(speeds[: k + 1]) for k in range(17))


FAMILIES = [curve(loss) for loss in (0.01, 0.03, 0.05, 0.08, 0.12, 0.2)]


def crowd(count: int, seed: int) -> Snapshot:
    dice = random.Random(seed)
    free = GPUS
    jobs = []
    for job in range(1, count + 1):
        high = dice.choice((1, 2, 4, 8, 8, 16))
        low = min(high, dice.choice((1, 1, 1, 2)))
        held = min(dice.randint(low, high), free) if dice.random() < 0.5 else 0
        held = held if held >= low else 0
        free -= held
        jobs.append(
            view(
                job,
                low,
                high,
                req=min(high, max(low, dice.choice((1, 2, 4)))),
                rem=dice.lognormvariate(8, 1.5),
                curve=dice.choice(FAMILIES) if dice.random() < 0.5 else curve(dice.uniform(0.01, 0.2)),
                held=held,
                at=NOW_S - 50_000 + job,
                waiting=dice.uniform(0, 20_000),
                team=f"team{job % 20}",
                attained_gpu_s=dice.lognormvariate(8, 2) if held else 0.0,
            )
        )
    return snapshot(jobs, GPUS)


def times_ms(call: Callable[[str, Snapshot], object], name: str, crowds: list[Snapshot], repeats: int) -> list[float]:
    taken = []
    for turn in range(repeats):
        began = time.process_time()
        call(name, crowds[turn % len(crowds)])
        taken.append(1000 * (time.process_time() - began))
    return sorted(taken)


@pytest.fixture(scope="module")
def crowds() -> list[Snapshot]:
    return [crowd(10_000, seed) for seed in (1, 2, 3)]


@pytest.mark.parametrize("name", FAST)
def test_ten_thousand_jobs_are_decided_in_time(name: str, crowds: list[Snapshot]) -> None:
    alone = times_ms(bare, name, crowds, REPEATS)
    with_layers = times_ms(decide, name, crowds, 9)
    record(
        "policies",
        {
            f"{name}_p50_ms": alone[len(alone) // 2],
            f"{name}_p99_ms": alone[-1],  # the slowest
            f"{name}_with_layers_p50_ms": with_layers[len(with_layers) // 2],
        },
    )


def test_a_policy_that_has_decided_before_reads_only_what_changed() -> None:
    """As in a daemon: one policy from decision to decision, each time a hundred of ten thousand jobs are another."""
    policy, taken, dice = policy_named("swell"), crowd(10_000, 1), random.Random(7)
    taken_ms = []
    for turn in range(REPEATS):
        jobs = list(taken.jobs)
        for place in dice.sample(range(len(jobs)), 100 if turn else 0):
            fresh = FixedSpeed(curve(dice.uniform(0.01, 0.2)))
            jobs[place] = replace(jobs[place], speed=fresh, remaining_1_s=jobs[place].remaining_1_s * 0.9)
        taken = replace(taken, jobs=tuple(jobs), now_s=taken.now_s + 1.0)
        began = time.process_time()
        policy.decide(taken, {}, random.Random(0))
        taken_ms.append(1000 * (time.process_time() - began))
    first, *later = taken_ms
    later.sort()
    record(
        "policies",
        {
            "swell_first_ms": first,
            "swell_100_changed_p50_ms": later[len(later) // 2],
            "swell_100_changed_p99_ms": later[-1],  # the slowest
        },
    )


@pytest.mark.parametrize("name", sorted(SOLVERS & set(POLICIES)))
def test_solvers_return_what_they_have_in_time(name: str) -> None:
    most = {count: times_ms(bare, name, [crowd(count, 1)], 3)[-1] for count in (2_000, 10_000)}
    growth = {count: times_ms(bare, name, [crowd(count, 5)], 3)[1] for count in COUNTS}
    record(
        "policies",
        {f"{name}_most_ms_at_{count}_jobs": taken for count, taken in most.items()}
        | {f"{name}_p50_ms_at_{count}_jobs": taken for count, taken in growth.items()},
    )


@pytest.mark.parametrize("name", FAST)
def test_time_grows_about_with_the_number_of_jobs(name: str) -> None:
    """Eight times the jobs take at most twenty times as long. `policy_growth.py` draws it."""
    taken = {count: times_ms(bare, name, [crowd(count, 5)], 5)[2] for count in COUNTS}
    record("policies", {f"{name}_p50_ms_at_{count}_jobs": ms for count, ms in taken.items()})
    assert taken[10_000] < 20 * max(taken[1_250], 1.0)


def test_a_thousand_jobs_are_fitted_in_a_second() -> None:
    told = History()
    dice = random.Random(3)
    for job in range(1, 1001):
        told.submit(job, epochs=100, family=f"family {job % 50}")
        for gpus in (1, 2, 4):
            told.run(job, gpus, [100 * (0.9 / gpus + 0.05) * dice.uniform(0.9, 1.1) for _ in range(2)])
    began = time.process_time()
    for job in range(1, 1001):
        told.curve(job)
        told.remaining_s(job)
    record("policies", {"refit_1000_jobs_s": time.process_time() - began})
