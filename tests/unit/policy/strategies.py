"""Snapshots at random, for property tests: every kind of job that the schema admits."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.snapshot import JobView, Options, Quota, Snapshot
from unit.policy.views import NOW_S, snapshot, view

COUNT = int(os.environ.get("SWELL_EXAMPLES", "200"))
EXAMPLES = settings(max_examples=COUNT, deadline=None)
MARKS = [pytest.mark.slow] if COUNT > 1000 else []
"""With `SWELL_EXAMPLES=20000` the same properties are the long version of themselves: `make test-slow`."""

TYPES = (("a",), ("b",), ("a", "b"), ("b", "a"), ("a", "b"), ())
SIZES = ((1,), (1, 2), (1, 2, 3, 4), (2, 3, 4), (1, 2, 4, 8), (4, 8), (3,), (2, 4, 6), tuple(range(1, 9)), (1, 9, 40))
CURVES = (
    tuple(float(k) for k in range(41)),
    tuple(k / (1 + 0.08 * max(0, k - 1)) for k in range(41)),
    (0.0, *[1.0] * 40),
    (0.0, *[1.0 + (k >= 4) * 2.0 + (k >= 8) * 1.0 for k in range(1, 41)]),
    (0.0, 0.5, 0.5, 3.0, 3.5, *[4.0] * 36),
    (0.0, 1.0, *[1.9] * 39),
    tuple(k**0.5 for k in range(41)),
)
SPECS = tuple(
    JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=40), launcher=launcher, uses_library=library)
    for launcher in (Launcher.SINGLE, Launcher.TORCHRUN)
    for library in (True, False)
)


@dataclass(frozen=True, slots=True)
class Kinds:
    """What the jobs of a snapshot may be."""

    priorities: int = 3
    teams: tuple[str, ...] = ("x", "y", "")
    stoppable: bool = False  # all of them
    one_type: bool = False  # of GPU, for all of them


_CHOICES: tuple[tuple[float, ...], ...] = (
    tuple(range(len(SIZES))),
    tuple(range(len(CURVES))),
    tuple(range(len(TYPES))),
    tuple(range(10)),  # whole GPUs, a share, none
    (0, 1, 2),  # requested: which of the sizes
    (0, 1, 2, 3),  # spec
    (0.0, 1e-3, 1.0, 40.0, 40.0, 3600.0, 1e7),  # remaining
    (0.0, 5.0, 30.0, 3600.0),  # restart cost
    (0.0, 100.0, 4000.0, 1e6),  # attained
    (0.0, 10.0, 10_000.0, 90_000.0),  # waiting, or since its last change
    tuple(range(7)),  # waits, runs at which size, stopping, pinned
    (0, 1, 2),  # priority
    (0, 1, 2),  # team
    (0, 1, 2, 3),  # submitted
)
_SHAPE = 6
"""So many of the choices are what a job is, the others how it stands."""
_bytes = st.binary(min_size=len(_CHOICES), max_size=len(_CHOICES))
"""A job, one byte a choice: one draw instead of fourteen makes 20,000 examples a matter of seconds."""


def _job(number: int, drawn: bytes, kinds: Kinds) -> JobView:
    chosen = [choices[byte % len(choices)] for byte, choices in zip(drawn, _CHOICES, strict=True)]
    sizes, curve, types, kind, requested, spec = (int(choice) for choice in chosen[:_SHAPE])
    rem, cost, attained, since, life, priority, team, at = chosen[_SHAPE:]
    milli = {0: 0, 1: 300, 2: 700}.get(kind, 1000)
    allowed = SIZES[sizes] if milli == 1000 else (1,)
    own = (("a",) if kinds.one_type else TYPES[types]) if milli else ()
    held = allowed[min(int(life) - 1, len(allowed) - 1)] if life and (own or not milli) else 0
    more: dict[str, Any] = {"changed_s": NOW_S - since, "stopping": life == 5, "pinned": life == 6} if held else {}
    return view(
        number,
        sizes=allowed,
        req=allowed[min(requested, len(allowed) - 1)],
        rem=rem,
        curve=CURVES[curve],
        curves={"b": CURVES[(curve + 1) % len(CURVES)]},
        types=own,
        held=held,
        held_type=own[-1] if own else "",
        milli=milli,
        at=NOW_S - 100_000.0 + at,
        waiting=since,
        spec=SPECS[spec - spec % 2 if kinds.stoppable else spec],
        restart_cost_s=cost,
        attained_gpu_s=attained,
        ran_s=attained / 2,
        priority=int(priority) % kinds.priorities,
        team=kinds.teams[int(team) % len(kinds.teams)],
        **more,
    )


@st.composite
def snapshots(draw: st.DrawFn, kinds: Kinds = Kinds(), quotas: bool = False) -> Snapshot:
    gpus = {"a": draw(st.integers(0, 12)), "b": draw(st.integers(0, 6))}
    drawn = draw(st.lists(_bytes, max_size=9))
    jobs = [_job(number, choices, kinds) for number, choices in enumerate(drawn, start=1)]
    options = Options()
    if quotas:
        limits = draw(st.tuples(st.integers(0, 8), st.booleans(), st.integers(0, 8), st.booleans()))
        options = Options(
            quotas={"x": Quota(gpus=limits[0], borrow=limits[1]), "y": Quota(gpus=limits[2], borrow=limits[3])}
        )
    return snapshot(_holding_what_exists(jobs, gpus), gpus, options)


def _holding_what_exists(jobs: list[JobView], gpus: dict[str, int]) -> list[JobView]:
    """Jobs beyond what the cluster has do not run."""
    left = {gpu_type: 1000 * count for gpu_type, count in gpus.items()}
    real: list[JobView] = []
    for job in jobs:
        need = job.held_n * job.gpu_milli
        gpu_type = job.allocation.gpu_type if job.allocation else ""
        if need > left.get(gpu_type, 0):
            job = replace(
                job, held_n=0, allocation=None, waiting_since_s=NOW_S, pinned=False, stopping=False, rate_now=0.0
            )
        elif need:
            left[gpu_type] -= need
        real.append(job)
    return real
