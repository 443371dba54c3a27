"""Lightning through its callback, and the submission guide's own scripts: stopped, resized, resumed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]

EPOCHS = 300
"""Of some 20 ms each: enough that a stop is agreed on before a quiet machine has run through them."""


def stopped_once(
    tmp_path: Path, script: Path, modules: list[str], sizes: tuple[int, int], done: str, epochs: int = EPOCHS
) -> list[int]:
    """Stops the script after its first report of an epoch, starts it again, and returns the epochs of its log."""
    sdk = ship.ship(tmp_path / "sdk")
    spec = JobSpec(
        name="x",
        command=("python", script.name),
        gpus=GpuRequest(min=1, max=2),
        epochs=epochs,
        batch_size=32,
        dataset_size=320,
    )
    with Stable(PYTHON, modules, [sdk]) as stable, fake_daemon() as daemon:
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=script, home=tmp_path, sdk=sdk)
        job.start(sizes[0])
        until_s = time.monotonic() + 90
        while not daemon.epochs() and time.monotonic() < until_s:
            time.sleep(0.02)
        job.ask_to_stop()
        assert set(job.ended()) == {STOPPED}, job.log(0)
        assert 0 < job.epochs_done < epochs
        job.start(sizes[1])
        assert set(job.ended(timeout_s=120)) == {0}, job.log(0)
        assert job.epochs_done == epochs
    return [int(match[1]) for line in job.lines() if (match := re.match(done, line))]


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_lightning_with_the_callback(tmp_path: Path, sizes: tuple[int, int]) -> None:
    script = ROOT / "examples" / "lightning" / "train.py"
    seen = stopped_once(tmp_path, script, ["lightning.pytorch"], sizes, r"epoch (\d+) devices")
    assert seen == list(range(EPOCHS)), "no epoch lost, none repeated"


def test_lightning_is_stopped_after_any_step_and_learns_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """In one process, with a validation, a schedule and a smaller last batch; with and without accumulation."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ship.ship(tmp_path / "sdk")), "OMP_NUM_THREADS": "1"}
    program = ROOT / "tests" / "torch" / "programs" / "lightning_every_step.py"
    done = subprocess.run([PYTHON, str(program)], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stops 31" in done.stdout


def test_the_guides_pytorch_script(tmp_path: Path) -> None:
    script = ROOT / "examples" / "guide" / "profiler_pytorch.py"
    seen = stopped_once(tmp_path, script, ["torch"], (1, 1), r"done (\d+)", epochs=1200)
    assert seen == list(range(1, 1201))


def test_the_guides_lightning_script(tmp_path: Path) -> None:
    script = ROOT / "examples" / "guide" / "profiler_lightning.py"
    assert stopped_once(tmp_path, script, ["lightning.pytorch"], (1, 1), r"done (\d+)") == list(range(1, EPOCHS + 1))
