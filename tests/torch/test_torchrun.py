"""torchrun and mpirun turn exit codes into 1; through `carry` a stop is still a stop, an end an end, a failure a
failure. Real DDP on one node, on two (two addresses of this machine) and under MPI, stopped and resized.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from integration.sdk.ddp_reference import EPOCH, PRINTED, SCRIPT, Reference
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
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Open MPI refuses root without these."""
SPEC = JobSpec(
    name="torchrun",
    command=("python", str(SCRIPT), "--weights", "weights.pt"),
    launcher=Launcher.TORCHRUN,
    gpus=GpuRequest(min=1, max=2),
    epochs=12,
)


def workers_of(spec: JobSpec, sizes: Sequence[int], tmp_path: Path, url: str, attempt: int) -> Sequence[Worker]:
    """With so many GPUs on each node. One node is this machine; two are addresses of it that only it can reach."""
    gpus = tuple(Gpu(index=index) for index in range(2))
    address = "127.0.0.1" if len(sizes) == 1 else "127.0.0.{}"
    nodes = {f"n{at}": Node(name=f"n{at}", gpus=gpus, address=address.format(at + 2)) for at in range(len(sizes))}
    parts = (Part(node=f"n{at}", gpus=tuple(range(size))) for at, size in enumerate(sizes))
    allocation = Allocation(parts=tuple(parts))
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
    return build_launch(record, nodes, dict.fromkeys(nodes, context)).workers


def start(worker: Worker, tmp_path: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, **worker.env, "PATH": f"{PYTHON.parent}:{os.environ['PATH']}", **AS_ROOT}
    with (tmp_path / "log").open("ab") as log:
        return subprocess.Popen(worker.argv, env=env, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)


def started(
    spec: JobSpec, sizes: Sequence[int], tmp_path: Path, url: str, attempt: int
) -> list[subprocess.Popen[bytes]]:
    return [start(worker, tmp_path) for worker in workers_of(spec, sizes, tmp_path, url, attempt)]


@pytest.mark.parametrize(
    ("launcher", "sizes"),
    [(Launcher.TORCHRUN, (2,)), (Launcher.TORCHRUN, (1, 1)), (Launcher.MPI, (2,))],
    ids=["torchrun", "torchrun-on-two-nodes", "mpi"],
)
def test_stopped_resized_and_finished(
    tmp_path: Path, launcher: Launcher, sizes: tuple[int, ...], undisturbed_ddp: Callable[[int], Reference]
) -> None:
    if launcher is Launcher.MPI and shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun here: `make system-packages` installs one")
    spec, log = replace(SPEC, launcher=launcher), tmp_path / "log"
    with fake_daemon() as daemon:
        daemon.ask()  # before it begins: no training is too fast for it
        (first,) = started(spec, (1,), tmp_path, daemon.url, 1)
        assert first.wait(240) == STOPPED, log.read_text()[-3000:]
        daemon.agreement = Agreement()
        both = started(spec, sizes, tmp_path, daemon.url, 2)
        assert [one.wait(240) for one in both] == [0] * len(both), log.read_text()[-3000:]
        assert {(body["rank"], body["world_size"]) for body in daemon.reports} == {(0, 1), (0, 2), (1, 2)}
    seen = EPOCH.findall(log.read_text())
    assert [int(epoch) for epoch, _, _ in seen] == list(range(SPEC.epochs)), "no epoch lost, none repeated"
    assert {workers for _, _, workers in seen} == {"1", "2"}
    reference = undisturbed_ddp(SPEC.epochs)
    assert [float(loss) for _, loss, _ in seen] == pytest.approx(reference.losses, abs=PRINTED)
    assert reference.difference(tmp_path / "weights.pt") <= 1e-12, "double precision; only the order of sums differs"


def test_a_failure_shows_the_exception_of_the_rank_that_failed(tmp_path: Path) -> None:
    """torchrun's own traceback and summary come after it."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, time\nif os.environ['RANK'] == '1':\n    raise KeyError('no such layer')\ntime.sleep(60)\n"
    )
    spec = replace(SPEC, command=("python", str(script)))
    with fake_daemon() as daemon:
        assert started(spec, (2,), tmp_path, daemon.url, 1)[0].wait(90) not in (0, STOPPED)
    assert cause_of((tmp_path / "log").read_text()) == "rank 1: KeyError: 'no such layer'"


def test_a_failure_stays_a_failure(tmp_path: Path) -> None:
    spec = replace(SPEC, command=("python", "-m", "no_such_module"))
    with fake_daemon() as daemon:
        assert started(spec, (1,), tmp_path, daemon.url, 1)[0].wait(90) not in (0, STOPPED)
