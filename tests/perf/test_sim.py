"""How fast the simulator and the forecast are, on public workloads beside the repository (or skipped)."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from figures import record
from swell.core.events import JobSubmitted, NodeObserved
from swell.core.lifecycle import apply
from swell.core.snapshot import Options
from swell.core.state import State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.forecast import forecast
from swell.sim.generate import Recipe, generate
from swell.sim.simulate import Case, simulate
from swell.speed.book import Book

pytestmark = pytest.mark.perf


@pytest.fixture(scope="module")
def data() -> Path:
    shared = Path(os.environ.get("SWELL_SHARED") or Path(__file__).parents[3] / "shared")
    if not (shared / "data" / "pollux").is_dir():
        pytest.skip("the public workloads are not here: set SWELL_SHARED to the directory that holds data/")
    return shared / "data"


@pytest.mark.parametrize("policy", ["swell", "fifo"])
def test_a_pollux_workload(data: Path, policy: str) -> None:
    case = Case(
        workload=data / "pollux/workloads/workload-2.csv",
        profiles=data / "pollux/profiles",
        cluster="16x4",
        policy=policy,
        clairvoyant=True,
    )
    simulate(case)  # reads and caches the profiles
    record("sim", {f"pollux_workload_{policy}_cpu_s": float(str(simulate(case).summary["cpu_s"]))})


@pytest.mark.parametrize("adaptive", [False, True])
def test_what_learning_costs(data: Path, adaptive: bool) -> None:
    """A workload whose speeds are learned beside the same one told, by turns: whatever the machine, and that it changes
    its speed, is the same for both."""
    told = Case(
        workload=data / "pollux/workloads/workload-2.csv",
        profiles=data / "pollux/profiles",
        cluster="16x4",
        policy="swell",
        clairvoyant=True,
        adaptive=adaptive,
    )
    cases = [told, replace(told, clairvoyant=False)]
    simulate(told)  # reads and caches the profiles
    taken = [[float(str(simulate(case).summary["cpu_s"])) for case in cases] for _ in range(3)]
    told_s, learned_s = (min(column) for column in zip(*taken, strict=True))
    batch = "adaptive" if adaptive else "fixed"
    name = f"pollux_workload_swell_learned_{batch}"
    record("sim", {f"{name}_cpu_s": learned_s, f"{name}_over_told": learned_s / told_s})


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "swell"])
def test_the_philly_trace(data: Path, policy: str) -> None:
    outcome = simulate(Case(workload=data / "philly/philly.csv.xz", policy=policy, clairvoyant=True))
    cpu_s = float(str(outcome.summary["cpu_s"]))
    events = float(str(outcome.summary["events"]))
    record("sim", {f"philly_{policy}_cpu_s": cpu_s, f"philly_{policy}_events_per_s": events / cpu_s})


def test_a_forecast_of_1000_jobs() -> None:
    state = State()
    for node in parse_cluster("32x8"):
        apply(state, NodeObserved(node=node, at_s=0.0))
    for number, arrival in enumerate(generate(Recipe(jobs=1000, gpus=256)).arrivals, start=1):
        apply(state, JobSubmitted(job=number, spec=arrival.spec, at_s=arrival.at_s))
    began = time.process_time()
    found = forecast(state, Book(), policy_named("swell"), placer_named("consolidated"), Options(), 30000.0, samples=3)
    said = found.intervals
    cpu_s = (time.process_time() - began) / 3
    assert len(said) == 1000
    record("sim", {"forecast_1000_jobs_cpu_s_a_sample": cpu_s})
