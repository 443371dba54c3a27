"""Small simulations whose outcome is computed by hand."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from swell.core.job import JobSpec
from swell.core.state import JobState
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.simulate import Case, simulate
from swell.sim.simulate_many import read_summary, run_cases, write
from swell.sim.workload import Arrival, Workload


def case(workload: Path, profiles: Path, **changes: object) -> Case:
    base = Case(workload=workload, profiles=profiles, cluster="2x4", policy="fifo", clairvoyant=True)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_one_job_waits_for_the_round_restarts_and_runs(one_job: Path, profiles: Path) -> None:
    outcome = simulate(case(one_job, profiles))
    # submitted at 10, decided at 60, 30 s without progress, 400 steps of 1 s
    assert outcome.rows[0].jct_s == pytest.approx(60 + 30 + 400 - 10)
    assert outcome.rows[0].restarts == 0


def test_at_each_event_nobody_waits_for_a_round(one_job: Path, profiles: Path) -> None:
    assert simulate(case(one_job, profiles, interval_s=0.0)).rows[0].jct_s == pytest.approx(30 + 400)


def test_an_elastic_policy_uses_what_is_idle(ten_jobs: Path, profiles: Path) -> None:
    fixed = simulate(case(ten_jobs, profiles)).summary
    elastic = simulate(case(ten_jobs, profiles, policy="elastic-fifo")).summary
    assert float(str(elastic["mean_jct_s"])) < float(str(fixed["mean_jct_s"]))
    assert fixed["not_completed"] == elastic["not_completed"] == 0


@pytest.mark.parametrize("clairvoyant", [True, False])
@pytest.mark.parametrize("adaptive", [True, False])
def test_every_job_ends_in_every_mode(ten_jobs: Path, profiles: Path, clairvoyant: bool, adaptive: bool) -> None:
    one = case(ten_jobs, profiles, policy="elastic-fifo", clairvoyant=clairvoyant, adaptive=adaptive)
    outcome = simulate(one)
    assert [row.state for row in outcome.rows] == ["completed"] * 10


def test_gpus_held_never_exceed_the_cluster(ten_jobs: Path, profiles: Path) -> None:
    outcome = simulate(case(ten_jobs, profiles, policy="elastic-fifo"))
    now: dict[int, int] = {}
    for i, (at_s, job, gpus) in enumerate(outcome.held):
        now[job] = gpus
        later = i + 1 < len(outcome.held) and outcome.held[i + 1][0] == at_s
        assert later or sum(now.values()) <= outcome.gpus


def test_work_is_never_lost_by_a_restart(ten_jobs: Path, profiles: Path) -> None:
    outcome = simulate(case(ten_jobs, profiles, policy="elastic-fifo", restart_s=0.0))
    restarts = sum(row.restarts for row in outcome.rows)
    assert restarts > 0
    # 400 units of progress each; one GPU makes at most 1 a second on its own
    assert all(row.gpu_s >= 400 * 0.99 for row in outcome.rows)


def test_outcomes_do_not_depend_on_processes(ten_jobs: Path, profiles: Path, tmp_path: Path) -> None:
    cases = [case(ten_jobs, profiles, policy=policy) for policy in ("fifo", "elastic-fifo")]
    write(run_cases(cases, processes=1), tmp_path / "one")
    write(run_cases(cases, processes=2), tmp_path / "two")
    assert (tmp_path / "one/jobs.csv").read_bytes() == (tmp_path / "two/jobs.csv").read_bytes()
    assert (tmp_path / "one/held.csv").read_bytes() == (tmp_path / "two/held.csv").read_bytes()


def test_outcomes_do_not_depend_on_the_hash_seed(ten_jobs: Path, profiles: Path, tmp_path: Path) -> None:
    outs = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        command = [sys.executable, "-c", "from swell.cli.sim import sim; sim()", "run", "--workload", str(ten_jobs)]
        command += ["--profiles", str(profiles), "--cluster", "2x4", "--policy", "fifo,elastic-fifo", "--out", str(out)]
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([*command, "--processes", "1"], check=True, env=env, capture_output=True)
        outs.append((out / "jobs.csv").read_bytes() + (out / "held.csv").read_bytes())
    assert outs[0] == outs[1]


def test_stragglers_and_noise_make_jobs_slower_and_reports_wrong(ten_jobs: Path, profiles: Path) -> None:
    from swell.sim.noise import Noise

    calm = simulate(case(ten_jobs, profiles, clairvoyant=False)).summary
    rough = simulate(case(ten_jobs, profiles, clairvoyant=False, noise=Noise(straggler=0.5, report=0.2))).summary
    assert float(str(rough["mean_jct_s"])) > float(str(calm["mean_jct_s"]))


def test_jobs_survive_nodes_that_fail_and_lose_at_most_what_was_not_reported(ten_jobs: Path, profiles: Path) -> None:
    calm = simulate(case(ten_jobs, profiles)).summary
    rough = simulate(case(ten_jobs, profiles, failure_hours=0.3, seed=2))
    assert [row.state for row in rough.rows] == ["completed"] * 10
    assert sum(row.restarts for row in rough.rows) > 0
    assert float(str(rough.summary["mean_jct_s"])) > float(str(calm["mean_jct_s"]))


def test_a_labelled_job_that_fits_nowhere_does_not_refuse_plain_jobs_of_its_shape() -> None:
    plain = JobSpec(name="plain", command=("x",))
    labelled = replace(plain, name="labelled", node_labels={"zone": "nowhere"})
    jobs = enumerate((plain, labelled, plain))
    arrivals = tuple(Arrival(at_s=float(i), spec=spec, truth={"duration_s": 5.0}) for i, spec in jobs)
    setup = Setup(nodes=parse_cluster("1x4"), policy=policy_named("fifo"), placer=placer_named("consolidated"))
    world = Durations(restart_s=0.0, per_node=4)
    simulation = Simulation(setup, world, TrueDurations(world))
    state = simulation.run(Workload(name="w", arrivals=arrivals))
    assert simulation.refused == 1
    assert [state.jobs[job].state for job in state.ended] == [JobState.COMPLETED] * 2


def test_jobs_that_could_never_run_are_counted_as_unfinished(tmp_path: Path) -> None:
    jobs = ["{takes: 1m, command: 'true', gpus: 1}", "{takes: 1m, command: 'true', gpus: 8}"]
    workload = tmp_path / "jobs.yaml"
    workload.write_text("".join(f"- {job}\n" for job in jobs))
    found = [simulate(Case(workload=workload, policy="fifo", cluster=cluster)) for cluster in ("1x2", "1x8")]
    assert [outcome.summary["unfinished"] for outcome in found] == [1, 0]
    assert [[row.state for row in outcome.rows] for outcome in found] == [["completed"], ["completed"] * 2]


def test_a_summary_says_what_was_simulated_and_what_it_took(ten_jobs: Path, profiles: Path) -> None:
    told = case(ten_jobs, profiles, load=2.0, draw=3, checkpoint_every_s=600.0, clairvoyant=True)
    outcome = simulate(told)
    found = outcome.summary
    assert (found["load"], found["draw"], found["checkpoint_every_s"], found["clairvoyant"]) == (2.0, 3, 600.0, True)
    assert outcome.gpus == 8
    assert len(outcome.rows) == 20
    assert int(str(found["events"])) > 4 * 20, "each job came, was given GPUs, started and ended"
    assert int(str(found["passes"])) > 10
    held_s = sum(row.gpu_s for row in outcome.rows)
    span_s = max(row.ended_s or 0.0 for row in outcome.rows) - min(row.submitted_s for row in outcome.rows)
    assert found["utilisation"] == pytest.approx(held_s / (8 * span_s), rel=0.01)


def test_what_jobs_held_and_a_row_of_each_are_in_the_files(ten_jobs: Path, profiles: Path, tmp_path: Path) -> None:
    outcomes = [simulate(case(ten_jobs, profiles, policy=policy)) for policy in ("fifo", "elastic-fifo")]
    write(outcomes, tmp_path / "out")
    with (tmp_path / "out/held.csv").open() as file:
        held = list(csv.DictReader(file))
    wanted = [
        {
            "workload": outcome.name,
            "policy": outcome.case.policy,
            "cluster_gpus": "8",
            "at_s": f"{at_s:.3f}",
            "job": str(job),
            "gpus": str(gpus),
        }
        for outcome in outcomes
        for at_s, job, gpus in outcome.held
    ]
    assert held == wanted
    with (tmp_path / "out/jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["job"], row["ended_s"]) for row in rows] == [
        (outcome.case.policy, str(row.job), f"{row.ended_s:.3f}") for outcome in outcomes for row in outcome.rows
    ]
    assert read_summary(tmp_path / "out") == [dict(outcome.summary) for outcome in outcomes]
