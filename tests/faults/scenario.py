"""What happens in one run of the fault tests, as a value drawn from a seed: jobs, wishes of their users, and faults."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    CUT = "cut"  # a machine can neither be reached nor answer; `amount`: commands sent meanwhile arrive so much later
    DEAF = "deaf"  # a machine obeys, its answers get lost
    SLOW = "slow"  # `amount` seconds per call
    DOUBLED = "doubled"  # commands arrive twice
    DOWN = "down"  # a machine loses its power, and is booted again at the end
    STORE_DOWN = "store down"
    STORE_DEAF = "store deaf"  # writes happen, but are answered with an error
    CLOCK = "clock"  # the daemon's wall clock jumps by `amount`
    RESTART = "restart"  # the daemon is killed, and started again after `lasts_s`
    CANCEL = "cancel"  # somebody cancels the job of number `target`


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Kind
    at_s: float
    lasts_s: float = 0.0
    target: int = 0  # number of the machine, or of the job
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    at_s: float
    lasts_s: float
    low: int
    high: int
    nodes: int  # machines in `cluster` it could be spread over
    priority: int
    ending: str  # "well", "fails" (exit code 1, once, then well), "broken" (cannot start), "deaf" (ignores SIGTERM)
    retries: int
    saves: bool  # waits for a checkpoint before it is stopped, and one never comes: resizes of it are withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    seed: int
    nodes: int
    gpus: int
    lease_s: float
    policy: str
    duplicate: float
    reorder: float
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]

    @property
    def faults_end_s(self) -> float:
        """From here on nothing goes wrong any more, nor is anything late on its way."""
        late = ((fault.amount if fault.kind is Kind.CUT else 0.0) for fault in self.faults)
        return max(
            (fault.at_s + fault.lasts_s + more_s for fault, more_s in zip(self.faults, late, strict=True)), default=0.0
        )


def scenario(seed: int) -> Scenario:
    rng = random.Random(seed)
    nodes, gpus = rng.randint(1, 3), rng.randint(1, 3)
    jobs = tuple(_job(rng, nodes, gpus) for _ in range(rng.randint(2, 6)))
    faults = tuple(sorted((_fault(rng, nodes, len(jobs)) for _ in range(rng.randint(1, 6))), key=lambda f: f.at_s))
    return Scenario(
        seed=seed,
        nodes=nodes,
        gpus=gpus,
        lease_s=rng.choice([30.0, 60.0]),
        policy=rng.choice(["fifo", "elastic-fifo", "srjf", "elastic-tiresias"]),
        duplicate=rng.choice([0.0, 0.0, 0.2]),
        reorder=rng.choice([0.0, 0.0, 0.2]),
        jobs=jobs,
        faults=faults,
    )


def _job(rng: random.Random, nodes: int, gpus: int) -> Job:
    low = rng.randint(1, max(1, nodes * gpus - 1))
    return Job(
        at_s=round(rng.uniform(0, 120), 3),
        lasts_s=round(rng.uniform(2, 60), 3),
        low=low,
        high=rng.choice([low, nodes * gpus]),
        nodes=nodes,
        priority=rng.choice([0, 0, 10]),
        ending=rng.choice(["well", "well", "well", "fails", "broken", "deaf"]),
        retries=rng.choice([0, 2]),
        saves=rng.random() < 0.3,
    )


def _fault(rng: random.Random, nodes: int, jobs: int) -> Fault:
    kind = rng.choice(list(Kind))
    amounts = {
        Kind.CUT: rng.choice([0.0, 10.0, 40.0]),
        Kind.SLOW: rng.choice([1.0, 4.0, 7.0]),
        Kind.CLOCK: rng.choice([-7200.0, -20.0, 20.0, 7200.0]),
    }
    at_s = round(rng.uniform(0, 150), 3)
    return Fault(
        kind=kind,
        at_s=at_s,
        lasts_s=round(rng.choice([0.5, 5.0, 20.0, 80.0]) * rng.uniform(0.5, 1.0), 3),
        target=rng.randrange(jobs if kind is Kind.CANCEL else nodes),
        amount=amounts.get(kind, 0.0),
    )
