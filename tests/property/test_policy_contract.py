"""The contract of every policy in the registry, through the layers around it. Safety properties are named "never"."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.core.decision import Decision, ReasonCode
from swell.core.snapshot import JobView, Snapshot
from swell.policy import layers
from swell.policy.base import speed_at
from swell.policy.registry import POLICIES, policy_named
from unit.policy.strategies import EXAMPLES, MARKS, Kinds, snapshots
from unit.policy.views import NOW_S, Inelastic, decide

pytestmark = MARKS
ALL = sorted(POLICIES)
ELASTIC = [name for name in ALL if policy_named(name).elastic]
KEPT = {ReasonCode.PINNED, ReasonCode.SETTLING}


def kept(decision: Decision, job: JobView) -> bool:
    return any(reason.code in KEPT for reason in decision.why().get(job.id, ()))


def free_milli(taken: Snapshot, decision: Decision) -> dict[str, int]:
    left = dict(taken.capacity.gpu_milli)
    for job in taken.jobs:
        if (given := decision.grants.get(job.id)) is not None and job.gpu_milli:
            left[given.gpu_type] -= given.n * job.gpu_milli
    return left


def used_milli(decision: Decision, jobs: list[JobView], gpu_type: str) -> int:
    grants = ((decision.grants.get(job.id), job) for job in jobs)
    return sum(g.n * job.gpu_milli for g, job in grants if g is not None and g.gpu_type == gpu_type)


@pytest.mark.parametrize("name", ALL)
@EXAMPLES
@given(taken=snapshots(), seed=st.integers(0, 10**6))
def test_never_oversubscribed_never_outside_the_allowed_sizes_and_always_the_same(
    name: str, taken: Snapshot, seed: int
) -> None:
    decision = decide(name, taken)
    assert all(left >= 0 for left in free_milli(taken, decision).values())
    for job in taken.jobs:
        given_it = decision.grants.get(job.id)
        if given_it is None:
            assert decision.why()[job.id]
        elif job.gpu_milli:
            assert given_it.n in job.sizes
            assert given_it.gpu_type in job.gpu_types
        else:
            assert (given_it.n, given_it.gpu_type) == (1, "")
        if job.pinned:
            assert given_it is not None
            assert given_it.n == job.held_n
    jobs = list(taken.jobs)
    random.Random(seed).shuffle(jobs)
    again = decide(name, taken.restricted(tuple(jobs), taken.capacity))
    assert (again, again.why()) == (decision, decision.why())


@pytest.mark.parametrize("name", ELASTIC)
@EXAMPLES
@given(taken=snapshots())
def test_never_a_gpu_idle_that_somebody_would_gain_from(name: str, taken: Snapshot) -> None:
    decision = decide(name, taken)
    weighs = policy_named(name).weighs_restarts
    reserved = any(job.waiting_s(NOW_S) > taken.options.starvation_s for job in taken.jobs)
    for gpu_type, left in free_milli(taken, decision).items():
        for job in taken.jobs:
            if gpu_type not in job.gpu_types or not job.gpu_milli or kept(decision, job):
                continue
            given_it = decision.grants.get(job.id)
            if given_it is None:
                assert job.min * job.gpu_milli > left or (reserved and not job.spec.may_be_stopped)
            elif given_it.gpu_type == gpu_type:
                more = [s for s in job.sizes if s > given_it.n and (s - given_it.n) * job.gpu_milli <= left]
                assert not any(gains(job, given_it.n, size, gpu_type, weighs) for size in more)


def gains(job: JobView, n: int, size: int, gpu_type: str, weighs: bool) -> bool:
    speed, faster = speed_at(job, n, gpu_type), speed_at(job, size, gpu_type)
    held_type = job.allocation.gpu_type if job.allocation else ""
    if not job.held_n or job.stopping or (n, gpu_type) != (job.held_n, held_type):
        return faster > speed * 1.000001
    if weighs:
        return False
    saved_s = job.remaining_s(NOW_S) * (1 / speed - 1 / faster)
    return saved_s > job.restart_cost_s * 1.000001 + 1e-9


@pytest.mark.parametrize("name", ALL)
@EXAMPLES
@given(taken=snapshots(Kinds(stoppable=True)))
def test_never_passed_over_for_a_lower_class_and_never_starved_while_there_is_room(name: str, taken: Snapshot) -> None:
    decision = decide(name, taken)
    elastic = policy_named(name).elastic
    free = free_milli(taken, decision)
    capacity = taken.capacity.gpu_milli
    since_s = NOW_S - taken.options.starvation_s
    alone = [job for job in taken.jobs if kept(decision, job)]
    others = [job for job in taken.jobs if not kept(decision, job)]
    for job in others:
        if job.id in decision.grants or not job.gpu_milli:
            continue
        need = (job.min if elastic else job.requested) * job.gpu_milli
        lower = [o for o in others if o.priority < job.priority]
        higher = [o for o in others if o.priority > job.priority]
        waited = job.waiting_since_s if job.waiting_since_s is not None else NOW_S
        starved = [
            o
            for o in others
            if o.priority == job.priority
            and not o.held_n
            and (o.waiting_since_s if o.waiting_since_s is not None else NOW_S) <= waited
        ]
        for gpu_type in job.gpu_types:
            assert free[gpu_type] + used_milli(decision, lower, gpu_type) < need
            if waited < since_s:
                assert capacity[gpu_type] - used_milli(decision, [*alone, *higher, *starved], gpu_type) < need


@pytest.mark.parametrize("name", ALL)
@EXAMPLES
@given(taken=snapshots(Kinds(priorities=1, stoppable=True, one_type=True), quotas=True))
def test_never_beyond_a_quota_while_others_with_a_right_wait(name: str, taken: Snapshot) -> None:
    decision = decide(name, taken)
    used: dict[str, int] = {"x": 0, "y": 0, "": 0}
    left_alone = dict(used)
    for job in taken.jobs:
        if (given_it := decision.grants.get(job.id)) is not None:
            used[job.team] += given_it.n * job.gpu_milli
            left_alone[job.team] += given_it.n * job.gpu_milli if kept(decision, job) else 0
    bound = {team: quota.gpus * 1000 for team, quota in taken.options.quotas.items()}
    for team, quota in taken.options.quotas.items():
        assert quota.borrow or used[team] <= max(bound[team], left_alone[team])
    if any(job.waiting_s(NOW_S) > taken.options.starvation_s for job in taken.jobs):
        return  # starving jobs go first, whatever their team's quota
    free = free_milli(taken, decision)["a"]
    for job in taken.jobs:
        if job.id in decision.grants or not job.gpu_milli:
            continue
        need = (job.min if policy_named(name).elastic else job.requested) * job.gpu_milli
        if used[job.team] + need <= bound.get(job.team, 10**9):
            borrowed = sum(
                max(0, used[team] - max(bound[team], left_alone[team])) for team in bound if team != job.team
            )
            assert free + borrowed < need


class Nobody(Inelastic):
    """Not elastic, and starts nothing."""

    def decide(self, taken: Snapshot, memory: Mapping[str, object], rng: object) -> Decision:
        return Decision(grants={}, memory=memory)


@EXAMPLES
@given(taken=snapshots(quotas=True))
def test_never_starts_a_job_that_a_policy_that_is_not_elastic_holds_back(taken: Snapshot) -> None:
    decision = layers.decide(Nobody(), taken, {}, random.Random(0))
    allowed = KEPT | {ReasonCode.STARVED}
    assert all({reason.code for reason in decision.why()[job]} & allowed for job in decision.grants)


HASH_SCRIPT = """
import random
from hypothesis import HealthCheck, Phase, given, seed, settings
from swell.policy.registry import POLICIES
from unit.policy.strategies import snapshots
from unit.policy.views import decide
seen = []
@seed(7)
@settings(max_examples=25, deadline=None, database=None, phases=[Phase.generate])
@given(taken=snapshots(quotas=True))
def run(taken):
    for name in sorted(POLICIES):
        made = decide(name, taken)
        seen.append((name, sorted(made.grants.items()), sorted((j, str(r)) for j, r in made.why().items()),
                     str(made.memory)))
run()
print(repr(seen))
"""


def test_decisions_are_the_same_under_any_hash_seed() -> None:
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root / "src"), str(root / "tests")])
    digests = []
    for hash_seed in ("1", "4242"):
        made = subprocess.run(
            [sys.executable, "-c", HASH_SCRIPT],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        assert len(made.stdout) > 10_000
        digests.append(hashlib.sha256(made.stdout).hexdigest())
    assert digests[0] == digests[1]
