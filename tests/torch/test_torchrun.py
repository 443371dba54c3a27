"""torchrun turns exit codes into 1; through `carry` a stop is still a stop, an end an end, a failure a failure."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from swell.core.agreement import Agreement
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.request import LaunchContext, build_launch
from swell.ports import Worker
from swell.sdk import ship
from swell.shim.cause import cause_of

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SWELL_TORCH_PYTHON") or ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not PYTHON.exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
STOPPED = 85
SPEC = JobSpec(
    name="torchrun",
    command=("python", str(ROOT / "examples" / "pytorch-ddp" / "train.py"), "--pause-s", "0.02"),
    launcher=Launcher.TORCHRUN,
    gpus=GpuRequest(min=1, max=2),
    epochs=30,
)


def worker_of(spec: JobSpec, size: int, tmp_path: Path, url: str, attempt: int) -> Worker:
    node = Node(name="here", gpus=tuple(Gpu(index=index) for index in range(2)))
    allocation = Allocation(parts=(Part(node="here", gpus=tuple(range(size))),))
    context = LaunchContext(
        url=url,
        token="t",
        runs_dir=str(tmp_path / "runs"),
        checkpoints_dir=str(tmp_path / "checkpoints"),
        work_dir=str(tmp_path / "work"),
        sdk_dir=str(ship.ship(tmp_path / "sdk")),
    )
    run = Run(id=RunId(1, attempt), allocation=allocation, planned_s=0.0)
    record = JobRecord(id=1, spec=spec, submitted_s=0.0, run=run)
    (worker,) = build_launch(record, {"here": node}, {"here": context}).workers
    return worker


def start(worker: Worker, tmp_path: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, **worker.env, "PATH": f"{PYTHON.parent}:{os.environ['PATH']}"}
    with (tmp_path / "log").open("ab") as log:
        return subprocess.Popen(worker.argv, env=env, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)


def test_stopped_resized_and_finished(tmp_path: Path) -> None:
    with fake_daemon() as daemon:
        first = start(worker_of(SPEC, 1, tmp_path, daemon.url, 1), tmp_path)
        limit_s = time.monotonic() + 90
        while not daemon.epochs() and first.poll() is None and time.monotonic() < limit_s:
            time.sleep(0.05)
        daemon.ask()
        assert first.wait(60) == STOPPED, (tmp_path / "log").read_text()[-3000:]
        daemon.agreement = Agreement()
        assert start(worker_of(SPEC, 2, tmp_path, daemon.url, 2), tmp_path).wait(90) == 0
        assert max(body["world_size"] for body in daemon.reports) == 2
    seen = re.findall(r"epoch (\d+) loss \S+ workers (\d)", (tmp_path / "log").read_text())
    assert [int(epoch) for epoch, _ in seen] == list(range(30)), "no epoch lost, none repeated"
    assert {workers for _, workers in seen} == {"1", "2"}


def test_a_failure_shows_the_exception_of_the_rank_that_failed(tmp_path: Path) -> None:
    """torchrun's own traceback and summary come after it."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, time\nif os.environ['RANK'] == '1':\n    raise KeyError('no such layer')\ntime.sleep(60)\n"
    )
    spec = replace(SPEC, command=("python", str(script)))
    with fake_daemon() as daemon:
        assert start(worker_of(spec, 2, tmp_path, daemon.url, 1), tmp_path).wait(90) not in (0, STOPPED)
    assert cause_of((tmp_path / "log").read_text()) == "rank 1: KeyError: 'no such layer'"


def test_a_failure_stays_a_failure(tmp_path: Path) -> None:
    spec = replace(SPEC, command=("python", "-m", "no_such_module"))
    with fake_daemon() as daemon:
        assert start(worker_of(spec, 1, tmp_path, daemon.url, 1), tmp_path).wait(90) not in (0, STOPPED)
