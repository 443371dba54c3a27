"""Real elastic Horovod, 1→2→3→1 in place: no restart of surviving workers, no epoch lost or repeated; then a stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.request import LaunchContext, build_launch
from swell.ports import Launch
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SWELL_HOROVOD_PYTHON") or ROOT / ".venv-horovod" / "bin" / "python")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not PYTHON.exists(), reason="no Horovod here: `make test-frameworks` makes .venv-horovod"),
]
LINE = re.compile(r"epoch (\d+) size (\d+) pid (\d+)")
STOPPED = 85


def launch_of(size: int, tmp_path: Path, url: str, sdk: Path) -> Launch:
    node = Node(name="here", gpus=tuple(Gpu(index=index) for index in range(3)))
    spec = JobSpec(
        name="hvd",
        command=("python", str(ROOT / "examples" / "horovod" / "train.py"), "--pause-s", "0.03"),
        launcher=Launcher.HOROVOD,
        gpus=GpuRequest(min=1, max=3),
        epochs=100_000,
    )
    run = Run(
        id=RunId(1, 1),
        allocation=Allocation(parts=(Part(node="here", gpus=tuple(range(size))),)),
        planned_s=0.0,
    )
    context = LaunchContext(
        url=url,
        token="t",
        runs_dir=str(tmp_path / "runs"),
        checkpoints_dir=str(tmp_path / "checkpoints"),
        work_dir=str(tmp_path / "work"),
        sdk_dir=str(sdk),
    )
    return build_launch(JobRecord(id=1, spec=spec, submitted_s=0.0, run=run), {"here": node}, {"here": context})


def write_discovery(launch: Launch, tmp_path: Path) -> None:
    """As an executor does it: beside, executable, renamed."""
    path = tmp_path / "runs" / "1.1" / "discovery"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(".discovery")
    beside.write_text(launch.discovery)
    beside.chmod(0o755)
    beside.rename(path)


def wait_for_size(size: int, log: Path, after: int) -> None:
    """Until an epoch at that size is in the log, after so many other lines."""
    limit_s = time.monotonic() + 300
    while not any(n == str(size) for _, n, _ in LINE.findall(log.read_text())[after:]):
        assert time.monotonic() < limit_s, log.read_text()[-3000:]
        time.sleep(0.05)


def test_resized_in_place_then_stopped(tmp_path: Path) -> None:
    sdk, log = ship.ship(tmp_path / "sdk"), tmp_path / "log"
    with fake_daemon() as daemon, log.open("wb") as output:
        launch = launch_of(1, tmp_path, daemon.url, sdk)
        write_discovery(launch, tmp_path)
        (worker,) = launch.workers
        env = {**os.environ, **worker.env, "PATH": f"{PYTHON.parent}:{os.environ['PATH']}"}
        process = subprocess.Popen(
            worker.argv, env=env, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            took_s = []
            for size in (1, 2, 3, 1):
                asked_s = time.monotonic()
                write_discovery(launch_of(size, tmp_path, daemon.url, sdk), tmp_path)
                wait_for_size(size, log, after=len(LINE.findall(log.read_text())))
                took_s.append(time.monotonic() - asked_s)
            daemon.ask()
            assert process.wait(120) == STOPPED, log.read_text()[-3000:]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = LINE.findall(log.read_text())
    epochs = [int(epoch) for epoch, _, _ in lines]
    print(f"from the change to the end of an epoch at the new size: {[round(s, 1) for s in took_s]} s")
    assert epochs == list(range(len(epochs))), "no epoch lost, none repeated"
    assert len({pid for _, _, pid in lines}) == 1, "the first worker lived through all of it"
    assert max(entry["gpus"] for entry in daemon.epochs()) == 3
