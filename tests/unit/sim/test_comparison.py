"""Several policies on the same jobs: the document that the Simulate view and the report draw."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from swell.core.errors import SwellError
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.snapshot import Options
from swell.core.state import JobRecord, State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import cluster_name, parse_cluster
from swell.sim.comparison import Comparison, Simulated, Trace, _Ends, encoded, of_queue, of_workload
from swell.sim.duration_world import Durations
from swell.sim.engine import Setup, Simulation
from swell.sim.generate import Recipe
from swell.sim.lanes import Watch
from swell.sim.workload import Arrival, Workload
from swell.speed.book import Book

POLICIES = ("fifo", "elastic-fifo")


def held_together(run: Simulated, gpus: int) -> None:
    """No GPU is ever in two spans at once."""
    by_gpu: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for span in run.spans:
        for node, indices in span.where:
            for index in indices:
                by_gpu.setdefault((node, index), []).append(
                    (span.from_s, float("inf") if span.to_s is None else span.to_s)
                )
    assert len(by_gpu) <= gpus
    for times in by_gpu.values():
        times.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(times))


def test_a_generated_workload_under_two_policies() -> None:
    (found,) = of_workload(Recipe(jobs=20, hours=1, gpus=8, seed=3), "1x8", POLICIES, "consolidated", 100)
    assert [run.policy for run in found.runs] == list(POLICIES)
    for run in found.runs:
        assert len(run.jobs) == 20
        held_together(run, 8)
        assert {span.job for span in run.spans} == {job.job for job in run.jobs}
        assert run.figures["jobs"] == 20
    assert json.loads(encoded([found]))[0]["machines"] == [{"name": "n0000", "gpus": ["gpu"] * 8}]


def test_the_spans_of_a_job_are_the_gpu_time_it_had() -> None:
    """Under fifo a job runs once: what its span holds after its start is its GPU time."""
    (found,) = of_workload(Recipe(jobs=12, hours=1, gpus=8, seed=1), "1x8", ("fifo",), "consolidated", 100)
    (run,) = found.runs
    for job in run.jobs:
        spans = [span for span in run.spans if span.job == job.job]
        ran_s = sum((s.to_s or 0) - max(s.from_s, s.started_s or 0) for s in spans for _, g in s.where for _ in g)
        assert ran_s == pytest.approx(job.gpu_s, rel=0.01, abs=0.1)


@pytest.mark.parametrize(
    ("name", "content", "jobs"),
    [
        (
            "w.yaml",
            "- {name: a, takes: 10m, command: x, gpus: 2}\n- {name: b, at: 1m, takes: 5m, command: x, gpus: 1}",
            2,
        ),
        ("t.csv", "job_id,user,num_gpus,timestamp,duration,cluster\nj1,u,1,2020-01-01 00:00:00,60,vc\n", 1),
    ],
)
def test_a_file_that_was_sent(name: str, content: str, jobs: int) -> None:
    (found,) = of_workload(Trace(name=name, content=content), "1x4", ("fifo",), "consolidated", 100)
    assert found.workload == name.split(".")[0]
    assert len(found.runs[0].jobs) == jobs


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (Trace(name="../../etc/w.txt", content="hello"), "w is in none of the formats"),
        (Trace(name="w.yaml", content="- {command: x, gpus: 64}"), "each needs more GPUs"),
        (Trace(name="w.yaml", content="- {command: x}\n" * 5), "5 jobs; here at most 4"),
        (Trace(name="w.yaml", content="- {at: tomorrow, command: x}"), "w, job 1, at"),
    ],
)
def test_a_file_that_cannot_be_simulated_says_why(trace: Trace, says: str) -> None:
    with pytest.raises(SwellError, match=says) as found:
        of_workload(trace, "1x8", ("fifo",), "consolidated", 4)
    assert "/tmp" not in str(found.value)


def queue() -> Simulation:
    """Eight GPUs, ten minutes in: some jobs run, some wait."""

    def arrival(number: int, gpus: int) -> Arrival:
        spec = JobSpec(
            name=f"job-{number}",
            command=("x",),
            gpus=GpuRequest(min=1, max=gpus),
            launcher=Launcher.PER_GPU,
            epochs=10,
            uses_library=True,
        )
        return Arrival(at_s=30.0 * number, spec=spec, truth={"duration_s": 3600.0})

    setup = Setup(
        nodes=parse_cluster("1x8"), policy=policy_named("fifo"), placer=placer_named("consolidated"), until_s=600.0
    )
    simulation = Simulation(setup, Durations(), Book())
    simulation.run(Workload(name="w", arrivals=tuple(arrival(n, 4) for n in range(6))))
    return simulation


def of_the_queue(live: Simulation) -> Comparison:
    (found,) = of_queue(live.state, Book(), Options(), 600.0, POLICIES, "consolidated")
    return found


def test_the_present_queue_goes_on_from_where_it_is() -> None:
    live = queue()
    before = dict(live.state.jobs)
    found = of_the_queue(live)
    assert live.state.jobs == before, "the live state is not touched"
    for run in found.runs:
        assert {job.job for job in run.jobs} == set(live.state.active)
        assert all(job.ended_s > 0 for job in run.jobs)
        held_together(run, 8)
        at_once = {span.job for span in run.spans if span.from_s == 0}
        assert {job for job in live.state.active if live.state.jobs[job].holding} <= at_once


def test_an_empty_queue_says_what_can_be_done() -> None:
    live = queue()
    live.state.active.clear()
    with pytest.raises(SwellError, match="generated"):
        of_the_queue(live)


def test_what_is_watched_is_bounded() -> None:
    (found,) = of_workload(Recipe(jobs=20, hours=1, gpus=8, seed=3), "1x8", ("fifo",), "consolidated", 100)
    watch = Watch(5)
    setup = Setup(nodes=parse_cluster("1x8"), policy=policy_named("fifo"), placer=placer_named("consolidated"))
    spec = JobSpec(name="a", command=("x",), gpus=GpuRequest(min=1, max=1), launcher=Launcher.PER_GPU)
    arrivals = tuple(Arrival(at_s=float(n), spec=spec, truth={"duration_s": 60.0}) for n in range(9))
    simulation = Simulation(setup, Durations(), Book(), (watch,))
    simulation.run(Workload(name="w", arrivals=arrivals))
    watch.end(simulation.state)
    assert len(watch.runs) == 5
    assert watch.truncated
    assert not found.runs[0].truncated


def test_a_cluster_has_a_name_that_makes_it_again() -> None:
    for name in ("2x4", "1x2xT4,3x8xA100"):
        assert cluster_name(parse_cluster(name)) == name


def test_a_cluster_beyond_measure_is_refused_before_it_is_made() -> None:
    with pytest.raises(SwellError, match="too large a cluster"):
        parse_cluster("100000000x100000000")


@pytest.mark.parametrize(("first_s", "start_s"), [(1060.0, 60.0), (900.0, 0.0), (None, None)])
def test_starts_of_the_present_queue_are_counted_from_now(first_s: float | None, start_s: float | None) -> None:
    waits = JobRecord(id=1, spec=JobSpec(name="j", command=("x",)), submitted_s=800.0)
    assert _Ends(State(), 1000.0)._start_s(replace(waits, first_started_s=first_s), waits) == start_s
