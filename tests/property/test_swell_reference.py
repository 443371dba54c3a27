"""The scalar reference of the swell policy and the vectorised version that runs decide the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swell.core.ids import JobId
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Curve, JobView, Options, Snapshot
from swell.core.unsaved import Unsaved
from swell.policy.swell import Swell
from swell.policy.swell.measures import Cluster
from swell.policy.swell.reference import decide
from swell.policy.swell.settings import settings_of
from unit.policy.strategies import EXAMPLES, MARKS
from unit.policy.views import NOW_S, snapshot, view

pytestmark = MARKS

CASES = 10
"""In each example: one draw of Hypothesis costs more than ten decisions."""


def _curve(rng: random.Random, most: int) -> Curve:
    """Rising, with flat parts and jumps: at the second node, for one."""
    speeds, speed = [0.0], 0.0
    for n in range(1, most + 1):
        speed += rng.choice((0.0, rng.random(), 1.0 / n, 1.0)) if n > 1 else rng.uniform(0.2, 2.0)
        speeds.append(speed)
    return tuple(speeds)


def _unsaved(rng: random.Random) -> Unsaved | None:
    since_s = NOW_S - rng.choice((0.0, rng.uniform(0, 60), rng.uniform(0, 9000)))
    return rng.choice((None, None, Unsaved(since_s=since_s, every_s=rng.choice((0.0, rng.uniform(30, 4000))))))


def _job(rng: random.Random, number: int) -> JobView:
    milli = rng.choice((1000, 1000, 1000, 1000, 250, 700))
    low = rng.choice((1, 1, 2, 4)) if milli == 1000 else 1
    high = low * rng.choice((1, 1, 2, 4, 8)) if milli == 1000 else 1
    sizes = tuple(range(low, high + 1)) if rng.random() < 0.7 else tuple(sorted({low, high, (low + high) // 2}))
    held = rng.choice((0, 0, rng.choice(sizes)))
    age_s = rng.choice((0.0, rng.uniform(0, 600), rng.uniform(0, 50_000)))
    now: dict[str, Any] = (
        {"rate_now": rng.uniform(0.1, 4.0), "as_of_s": NOW_S - rng.choice((0.0, rng.uniform(0, 9000)))} if held else {}
    )
    guessed: dict[str, Any] = (
        {
            "length_median_1_s": rng.lognormvariate(7, 2),
            "length_sigma": rng.uniform(0.1, 3.0),
            "done_1_s": rng.choice((0.0, rng.lognormvariate(6, 2))),
        }
        if rng.random() < 0.4
        else {}
    )
    return view(
        number,
        sizes=sizes,
        rem=rng.choice((rng.lognormvariate(7, 2), rng.lognormvariate(3, 1))),
        curve=_curve(rng, high),
        held=held,
        milli=milli,
        at=NOW_S - age_s,
        waiting=rng.uniform(0, age_s),
        waited_s=rng.uniform(0, age_s / 2),
        attained_gpu_s=rng.choice((0.0, rng.uniform(0, 4) * age_s)),
        changed_s=NOW_S - rng.choice((0.0, rng.uniform(0, 60_000))),
        restart_cost_s=rng.choice((0.0, 30.0, rng.uniform(0, 300))),
        # Never twice the same: where a GPU has no price, jobs of equal weight tie but for the last bit of a power.
        weight=rng.choice((rng.uniform(0.9, 1.1), rng.uniform(1e-5, 1e-3), rng.uniform(0.1, 5))),
        deadline_s=rng.choice((0.0, 0.0, NOW_S + rng.uniform(-100, 20_000))),
        stopping=bool(held) and rng.random() < 0.1,
        unsaved=_unsaved(rng) if held else None,
        **guessed,
        **now,
    )


def _case(rng: random.Random) -> Snapshot:
    jobs = [_job(rng, number) for number in range(1, rng.randrange(1, 12) + 1)]
    per_node = rng.choice((1, 4, 8))
    gpus = tuple(Gpu(index=index) for index in range(per_node))
    nodes = tuple(Node(name=f"n{number}", gpus=gpus) for number in range(2))
    options = (
        {}
        if rng.random() < 0.5
        else {
            "price": rng.uniform(0, 8),
            "fairness": rng.choice((0.0, 4.0)),
            "efficiency": rng.choice((0.0, 0.5, 1.0)),
        }
    )
    return replace(snapshot(jobs, rng.randrange(1, 40), Options(policy=options)), nodes=nodes)


def by_reference(taken: Snapshot) -> dict[JobId, int]:
    (gpu_type, milli), *none = taken.capacity.gpu_milli.items()
    assert not none
    per_node = max(len(node.gpus) for node in taken.nodes)
    cluster = Cluster(gpu_type=gpu_type, milli=milli, per_node=per_node, now_s=taken.now_s)
    return decide(taken.jobs, cluster, settings_of(taken))


def by_policy(taken: Snapshot) -> dict[JobId, int]:
    decision = Swell().decide(taken, {}, random.Random(0))
    return {job: given.n for job, given in decision.grants.items()}


@EXAMPLES
@given(seed=st.integers(0, 2**60))
def test_the_vectorised_policy_decides_as_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(CASES):
        taken = _case(rng)
        assert by_policy(taken) == by_reference(taken), f"case {number}"
