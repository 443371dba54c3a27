"""Job views and snapshots by hand, for tests of policies."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swell.core.decision import Decision
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Part
from swell.core.snapshot import Capacity, Curve, JobView, Options, Snapshot
from swell.core.state import JobState
from swell.policy import layers
from swell.policy.options import NO_OPTIONS
from swell.policy.registry import policy_named

NOW_S = 1_000_000.0


class Inelastic:
    """What a policy of a test has besides its `decide`."""

    name = "of-a-test"
    elastic = False
    weighs_restarts = False
    OPTIONS = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class FixedSpeed:
    """A curve by GPU type, or one for all of them."""

    default: Curve
    by_type: Mapping[str, Curve] = field(default_factory=dict)

    def curve(self, gpu_type: str) -> Curve:
        return self.by_type.get(gpu_type, self.default)

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        return self.curve(gpu_type)[min(gpus, len(self.curve(gpu_type)) - 1)]


def linear(most: int) -> Curve:
    return tuple(float(k) for k in range(most + 1))


def power(most: int, exponent: float) -> Curve:
    return tuple(float(k) ** exponent if k else 0.0 for k in range(most + 1))


def view(
    job: int,
    low: int = 1,
    high: int = 1,
    *,
    req: int = 0,
    rem: float = 3600.0,
    curve: Curve | None = None,
    curves: Mapping[str, Curve] | None = None,
    sizes: tuple[int, ...] = (),
    types: tuple[str, ...] = ("gpu",),
    held: int = 0,
    held_type: str = "",
    at: float | None = None,
    milli: int = 1000,
    waiting: float = 0.0,
    **more: Any,
) -> JobView:
    sizes = sizes or tuple(range(low, high + 1))
    gpu_type = (held_type or types[0]) if milli and held else ""
    spec = more.pop("spec", None) or JobSpec(
        name=f"job{job}", command=("true",), gpus=GpuRequest(min=sizes[0], max=sizes[-1]), uses_library=True
    )
    values: dict[str, Any] = {
        "id": job,
        "spec": spec,
        "state": JobState.RUNNING if held else JobState.QUEUED,
        "submitted_s": NOW_S - 1000.0 + job if at is None else at,
        "speed": FixedSpeed(curve or linear(sizes[-1]), curves or {}),
        "sizes": sizes,
        "requested": req or sizes[0],
        "gpu_milli": milli,
        "gpu_types": types,
        "remaining_1_s": rem,
        "as_of_s": NOW_S,
        "waiting_since_s": None if held else NOW_S - waiting,
    }
    if held:
        part = Part(node="n1", gpus=tuple(range(held)) if milli else ())
        values |= {
            "held_n": held,
            "allocation": Allocation(parts=(part,), gpu_type=gpu_type),
            "rate_now": 1.0,
            "first_started_s": NOW_S - 500.0,
            "changed_s": NOW_S - 500.0,
        }
    return JobView(**(values | more))


def snapshot(
    jobs: Sequence[JobView], gpus: int | Mapping[str, int] = 8, options: Options | None = None, **capacity: int
) -> Snapshot:
    counts = {"gpu": gpus} if isinstance(gpus, int) else dict(gpus)
    return Snapshot(
        now_s=NOW_S,
        jobs=tuple(jobs),
        nodes=(),
        capacity=Capacity(
            gpu_milli={t: 1000 * n for t, n in sorted(counts.items())},
            **({"cpus": 10_000, "memory_mib": 10_000_000} | capacity),
        ),
        options=options or Options(),
    )


def decide(name: str, taken: Snapshot, memory: Mapping[str, object] | None = None) -> Decision:
    """What the policy says, with the layers around it."""
    return layers.decide(policy_named(name), taken, memory or {}, random.Random(0))


def bare(name: str, taken: Snapshot, memory: Mapping[str, object] | None = None) -> Decision:
    """What the policy alone says."""
    return policy_named(name).decide(taken, memory or {}, random.Random(0))


def counts(decision: Decision, jobs: Sequence[JobView]) -> list[int]:
    return [decision.grants[job.id].n if job.id in decision.grants else 0 for job in jobs]
