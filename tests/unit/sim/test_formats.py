"""Workloads in every format: what is read is what was written."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from swell.core.errors import SwellError
from swell.sim.generate import Recipe, generate
from swell.sim.simulate import Case, format_of, simulate
from swell.sim.swell_workloads import read_jobs, read_log, write_jobs
from swell.sim.traces import Columns, _gpus, cluster_for, read_trace
from swell.sim.workload import Arrival

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 00:00:00,60.0,1,60.0,a
2017-10-09 00:01:00,600.0,2,1200.0,a
2017-10-09 00:01:00,30.0,8,240.0,b
"""
HELIOS = """job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,vc
1,u,2,4,1,COMPLETED,2020-09-01 00:00:00,2020-09-01 00:00:10,2020-09-01 00:01:40,90,10,vc1
2,u,0,4,1,COMPLETED,2020-09-01 00:00:05,,,,0,vc1
"""
ALIBABA = """job_name,user,start_time,end_time,plan_gpu,inst_num,group
x,u,1000,1600,50,4,g
y,u,1000,900,100,1,g
"""


def sizes(arrival: Arrival) -> tuple[int, int, int]:
    gpus = arrival.spec.gpus
    return gpus.min, gpus.max, gpus.requested


def test_each_virtual_cluster_is_a_workload_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv.xz"
    path.write_bytes(lzma.compress(PHILLY.encode()))
    a, b = read_trace(path, format_of(path))
    assert [(arrival.at_s, arrival.spec.gpus.requested) for arrival in a.arrivals] == [(0.0, 1), (60.0, 2)]
    assert [arrival.truth["duration_s"] for arrival in b.arrivals] == [30.0]


def test_jobs_that_never_ran_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "helios.csv").write_text(HELIOS)
    (tmp_path / "alibaba.csv").write_text(ALIBABA)
    (helios,) = read_trace(tmp_path / "helios.csv", format_of(tmp_path / "helios.csv"))
    (alibaba,) = read_trace(tmp_path / "alibaba.csv", format_of(tmp_path / "alibaba.csv"))
    assert [arrival.spec.gpus.requested for arrival in helios.arrivals] == [2]
    assert [(a.spec.gpus.requested, a.truth["duration_s"]) for a in alibaba.arrivals] == [(2, 600.0)]


def test_a_trace_runs_on_a_cluster_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    assert [cluster_for(workload) for workload in read_trace(path, "philly")] == ["1x8", "1x8"]
    outcome = simulate(Case(workload=path, policy="fifo", interval_s=0.0, restart_s=10.0))
    assert sorted(round(row.jct_s) for row in outcome.rows) == [40, 70, 610]
    assert len({row.job for row in outcome.rows}) == 3


def test_a_file_in_no_known_format_is_refused_with_the_formats(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SwellError, match=r"pollux, sia, jobs, log, philly"):
        format_of(tmp_path / "x.csv")


def test_a_generated_workload_is_the_same_for_the_same_seed_and_survives_its_file(tmp_path: Path) -> None:
    recipe = Recipe(jobs=50, seed=3)
    workload = generate(recipe)
    assert workload == generate(recipe)
    assert workload != generate(Recipe(jobs=50, seed=4))
    write_jobs(workload, tmp_path / "w.yaml")
    back = read_jobs(tmp_path / "w.yaml")
    assert [sizes(a) for a in back.arrivals] == [sizes(a) for a in workload.arrivals]
    assert [a.truth["duration_s"] for a in back.arrivals] == pytest.approx(
        [a.truth["duration_s"] for a in workload.arrivals], abs=0.06
    )


def test_job_files_say_when_and_how_long(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("- at: 1m\n  takes: 2m\n  command: python a.py\n  gpus: 2\n- command: python b.py\n  takes: 30\n")
    outcome = simulate(Case(workload=path, policy="fifo", cluster="1x4", interval_s=0.0, restart_s=0.0))
    assert [(row.submitted_s, round(row.jct_s, 3)) for row in outcome.rows] == [(0.0, 30.0), (60.0, 120.0)]


def test_a_wrong_time_names_file_job_and_field(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("- at: soon\n  command: python a.py\n")
    with pytest.raises(SwellError, match=r"jobs\.yaml, job 1, at: "):
        read_jobs(path)


def test_an_event_log_is_a_workload(tmp_path: Path) -> None:
    spec = {"name": "j", "command": ["x"], "gpus": {"min": 1, "max": 4, "start": 1}, "uses_library": True}
    allocation = {"parts": [{"node": "n", "gpus": [0]}], "gpu_type": "gpu"}
    lines = [
        {"seq": 1, "type": "JobSubmitted", "job": 1, "spec": spec, "at_s": 100.0},
        {"seq": 2, "type": "JobSubmitted", "job": 2, "spec": spec, "at_s": 105.0},
        {"seq": 3, "type": "RunPlanned", "run": "1.1", "job": 1, "allocation": allocation, "at_s": 101.0},
        {"seq": 4, "type": "RunStarted", "run": "1.1", "job": 1, "at_s": 102.0},
        {"seq": 5, "type": "RunEnded", "run": "1.1", "job": 1, "reason": "finished", "at_s": 152.0},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    (arrival,) = read_log(path).arrivals
    assert arrival.at_s == 0.0
    assert arrival.truth["duration_s"] == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("percent", "instances", "gpus"), [("25", "1", 1), ("50", "3", 2), ("100", "2", 2), ("0", "5", 0), ("x", "1", None)]
)
def test_parts_of_gpus_of_all_instances_are_rounded_up_together(percent: str, instances: str, gpus: int | None) -> None:
    columns = Columns(submitted="t", gpus="gpu", gpu_unit=0.01, instances="n")
    assert _gpus({"gpu": percent, "n": instances}, columns) == gpus
