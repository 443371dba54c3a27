"""Lightning through its callback, and the submission guide's own scripts: stopped, resized, resumed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, TO_BE_STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]

EPOCHS = 40


def stopped_once(home: Path, script: Path, stable: Stable, sdk: Path, sizes: tuple[int, int]) -> list[str]:
    """Stops the script some epochs after it began, starts it again, and returns the lines of both attempts."""
    spec = JobSpec(
        name="x",
        command=("python", script.name),
        gpus=GpuRequest(min=1, max=2),
        epochs=EPOCHS,
        batch_size=32,
        dataset_size=320,
    )
    with fake_daemon() as daemon:
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=script, home=home, sdk=sdk)
        job.start(sizes[0], agreement=TO_BE_STOPPED)
        assert set(job.ended(timeout_s=240)) == {STOPPED}, job.log(0)
        assert 0 < job.epochs_done < EPOCHS
        job.start(sizes[1])
        assert set(job.ended(timeout_s=240)) == {0}, job.log(0)
        assert job.epochs_done == EPOCHS
    return job.lines()


def numbers(pattern: str, lines: list[str]) -> list[int]:
    return [int(match[1]) for line in lines if (match := re.match(pattern, line))]


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_lightning_with_the_callback(tmp_path: Path, sizes: tuple[int, int], stable: Stable, sdk: Path) -> None:
    script = ROOT / "examples" / "lightning" / "train.py"
    lines = stopped_once(tmp_path, script, stable, sdk, sizes)
    assert numbers(r"epoch (\d+) devices", lines) == list(range(EPOCHS)), "no epoch lost, none repeated"


def test_lightning_is_stopped_after_any_step_and_learns_the_same_to_the_last_bit(
    tmp_path: Path, stable: Stable
) -> None:
    """In one process, with a validation, a schedule and a smaller last batch; with and without accumulation."""
    program, log = ROOT / "tests" / "torch" / "programs" / "lightning_every_step.py", tmp_path / "log"
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    assert stable.wait(stable.start([str(program)], env, tmp_path, log), 300) == 0, log.read_text()[-3000:]
    assert "stops 31" in log.read_text()


@pytest.mark.parametrize("framework", ["pytorch", "lightning"])
def test_the_guides_scripts(tmp_path: Path, framework: str, stable: Stable, sdk: Path) -> None:
    script = ROOT / "examples" / "guide" / f"profiler_{framework}.py"
    lines = stopped_once(tmp_path, script, stable, sdk, (1, 1))
    assert numbers(r"done (\d+)", lines) == list(range(1, EPOCHS + 1))
