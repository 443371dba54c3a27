"""A made-up application with exact numbers, in the format of the public profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

EPOCHS = 4
STEPS = 100  # of the initial batch size, an epoch


def write_profiles(directory: Path) -> Path:
    """`toy`: 1 s a step of 10 samples on one GPU, half of it parallel; perfectly efficient at any batch size."""
    app = directory / "toy"
    app.mkdir(parents=True)
    lines = ["placement,local_bsz,step_time,sync_time"]
    for shape in ("1", "2", "4", "22", "44"):
        sync = 0.0 if shape == "1" else 0.1 * len(shape)
        lines += [f"{shape},{local},{0.1 * local + sync},{sync}" for local in (5, 10, 40)]
    (app / "placements.csv").write_text("\n".join(lines) + "\n")
    scalability = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    scalability += [f"4,{n},{local},{0.1 * local + 0.4},0.4" for n in (4, 16) for local in (5, 10, 40)]
    (app / "scalability.csv").write_text("\n".join(scalability) + "\n")
    for batch in (10, 40):
        rows = ["progress,iteration,metric,grad_sqr,grad_var"]
        rows += [f"{STEPS * (e + 1)},{STEPS * (e + 1) * 10 // batch},0.5,0.0,1.0" for e in range(EPOCHS)]
        (app / f"validation-{batch}.csv").write_text("\n".join(rows) + "\n")
    return directory


def write_workload(path: Path, jobs: list[tuple[int, int, int]]) -> Path:
    """(time, GPUs, batch size) of each job."""
    lines = ["name,time,application,num_replicas,batch_size"]
    lines += [f"toy-{i},{at},toy,{gpus},{batch}" for i, (at, gpus, batch) in enumerate(jobs)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    return write_profiles(tmp_path / "profiles")


@pytest.fixture
def one_job(tmp_path: Path) -> Path:
    return write_workload(tmp_path / "one.csv", [(10, 1, 10)])


@pytest.fixture
def ten_jobs(tmp_path: Path) -> Path:
    return write_workload(tmp_path / "ten.csv", [(10 * i, 1 + i % 4, 10 if i % 2 else 40) for i in range(10)])
