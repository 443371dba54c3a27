"""Against real processes: what the simulator says of the mean completion time, before anything runs, comes true."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from harness import Daemon, daemon, eventually
from swell.sim.case import Case, simulate

JOBS = 150
SLOTS = 8
SEED = 11


def workload() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    at = 0.0
    jobs = []
    for _ in range(JOBS):
        at += rng.expovariate(1 / 0.75)
        jobs.append({"at": round(at, 2), "takes": round(rng.uniform(1.0, 6.0), 2), "gpus": rng.choice([1, 1, 2])})
    return jobs


def ended(served: Daemon) -> bool:
    counts = served.get("/v1/health")["jobs"]
    return (
        sum(counts.values()) > 0 and sum(counts.get(s, 0) for s in ("queued", "starting", "running", "stopping")) == 0
    )


def finished(served: Daemon, ids: list[int]) -> list[dict[str, Any]]:
    eventually(lambda: ended(served), 300, what="all jobs have ended", every_s=0.2)
    return [served.get(f"/v1/jobs/{job}") for job in ids]


def start_cost_s(served: Daemon) -> float:
    """What a start takes here, from the end of the run before: measured on five waves of jobs before the workload."""
    waves = 5
    ids = [served.submit(command=["sleep", "1"], gpus=1)[0] for _ in range(waves * SLOTS)]
    views = finished(served, ids)
    took_s = max(float(v["ended_s"]) for v in views) - min(float(v["submitted_s"]) for v in views)
    return max(0.0, took_s / waves - 1.0)


@pytest.mark.slow
def test_the_mean_completion_time_of_real_processes_is_predicted_within_5_percent(tmp_path: Path) -> None:
    jobs = workload()
    with daemon(tmp_path / "home", gpus=SLOTS, args=("--policy", "fifo")) as served:
        cost_s = start_cost_s(served)
        predicted_s = predict(jobs, cost_s, tmp_path)
        ids = []
        began = time.monotonic()
        for job in jobs:
            time.sleep(max(0.0, began + job["at"] - time.monotonic()))
            ids += served.submit(command=["sleep", str(job["takes"])], gpus=job["gpus"])
        views = finished(served, ids)
    real_s = sum(float(v["ended_s"]) - float(v["submitted_s"]) for v in views) / len(views)
    print(f"mean completion time: predicted {predicted_s:.2f} s, real {real_s:.2f} s, a start costs {cost_s:.3f} s")
    assert predicted_s == pytest.approx(real_s, rel=0.05)


def predict(jobs: list[dict[str, Any]], cost_s: float, directory: Path) -> float:
    import yaml

    path = directory / "jobs.yaml"
    path.write_text(yaml.safe_dump([{**job, "command": "sleep 1"} for job in jobs]))
    case = Case(workload=path, policy="fifo", cluster=f"1x{SLOTS}", interval_s=0.0, restart_s=cost_s)
    return float(str(simulate(case).summary["mean_jct_s"]))
