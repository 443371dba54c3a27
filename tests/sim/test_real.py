"""Against real processes: what the simulator says of the mean completion time, before anything runs, comes true.

Hundreds of short numpy trainings with the in-job library, on a real daemon, under elastic policies. Times of epochs,
starts and stops are measured before on other trainings, on a daemon of their own.
"""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml

from harness import Daemon, daemon, eventually
from swell.core.events import Event, RunEnded
from swell.core.resources import Node
from swell.core.snapshot import Options
from swell.core.state import State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.engine import Setup, Simulation
from swell.sim.swell_workloads import read_jobs
from swell.speed.book import Book
from trainers import Costs, Trainings, arrivals, measured, observed_node, parse_events

SLOTS = 16
JOBS = 200
APART_S = 1.45
"""Between two arrivals, on average: 18 s of a slot each, so that about 0.8 of the slots are used."""
OPTIONS = Options(min_run_s=3.0)
"""Jobs of seconds are resized after seconds."""
OTHERS = 60
"""So many are run before, to measure costs."""
DRAWS = 8
"""Who gets what hangs on moments: with other epochs of the same lengths the mean differs by 1 % (standard deviation).
Predicted is the mean over so many."""


def events(served: Daemon) -> list[dict[str, Any]]:
    with closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection:
        headers = {"Authorization": f"Bearer {served.token}"}
        connection.request("GET", "/v1/events?after=0&follow=false", headers=headers)
        return parse_events(connection.getresponse().read().decode())


def ended(served: Daemon) -> bool:
    counts = served.get("/v1/health")["jobs"]
    return not any(counts.get(state, 0) for state in ("queued", "starting", "running", "stopping"))


def lived(jobs: list[dict[str, Any]], policy: str, home: Path) -> list[dict[str, Any]]:
    """The events of a daemon to which these jobs came."""
    home.mkdir()
    (home / "config.yaml").write_text(yaml.safe_dump({"options": {"min_run_s": OPTIONS.min_run_s}}))
    with daemon(home, gpus=SLOTS, args=("--policy", policy)) as served:
        began_s = time.monotonic()
        for job in jobs:
            time.sleep(max(0.0, began_s + job["at"] - time.monotonic()))
            served.submit(**{key: value for key, value in job.items() if key != "at"})
        eventually(lambda: ended(served), 300, what="all jobs have ended", every_s=0.2)
        return events(served)


def predicted(jobs: list[dict[str, Any]], policy: str, costs: Costs, node: Node, directory: Path) -> list[float]:
    """Completion times in all draws."""
    path = directory / "jobs.yaml"
    path.write_text(yaml.safe_dump(jobs))
    return [took_s for seed in range(DRAWS) for took_s in simulated(path, policy, Trainings(costs, seed), node)]


def simulated(path: Path, policy: str, world: Trainings, node: Node) -> list[float]:
    took_s: list[float] = []

    def watch(state: State, event: Event) -> None:
        if isinstance(event, RunEnded) and (job := state.jobs[event.run.job]).ended:
            took_s.append(event.at_s - job.submitted_s)

    setup = Setup(
        nodes=(node,),
        policy=policy_named(policy),
        placer=placer_named("consolidated"),
        options=OPTIONS,
    )
    Simulation(setup, world, Book(), (watch,)).run(read_jobs(path))
    return took_s


def completion_times(found: list[dict[str, Any]]) -> list[float]:
    submitted = {event["job"]: event["at_s"] for event in found if event["type"] == "JobSubmitted"}
    ends = {event["job"]: event["at_s"] for event in found if event["type"] == "RunEnded"}  # the last one stays
    return [ends[job] - at_s for job, at_s in submitted.items()]


def stops(found: list[dict[str, Any]]) -> int:
    return sum(event["type"] == "RunEnded" and event["reason"] == "stopped" for event in found)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["elastic-fifo", "swell"])
def test_the_mean_completion_time_of_real_trainings_is_predicted_within_5_percent(policy: str, tmp_path: Path) -> None:
    before = lived(arrivals(OTHERS, APART_S, seed=1), policy, tmp_path / "before")
    costs = measured(before)
    jobs = arrivals(JOBS, APART_S, seed=2)
    said_s = predicted(jobs, policy, costs, observed_node(before), tmp_path)
    assert len(said_s) == DRAWS * JOBS
    found = lived(jobs, policy, tmp_path / "home")
    real_s = completion_times(found)
    print(f"{policy}: predicted {mean(said_s):.2f} s, real {mean(real_s):.2f} s, {stops(found)} stops")
    print(f"costs as predicted with: {costs}; as they were: {measured(found)}")
    assert mean(said_s) == pytest.approx(mean(real_s), rel=0.05)
