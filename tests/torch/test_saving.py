"""Saves beside the training, with real tensors that training changes in place right after; loaders restored."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from integration.sdk.stable import Stable
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]


def test_what_is_written_is_the_state_at_the_moment_of_the_save_and_the_stall_is_known(tmp_path: Path) -> None:
    """By `run.save` and by torch.distributed.checkpoint, each at once and in the background."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ship.ship(tmp_path / "sdk")), "OMP_NUM_THREADS": "1"}
    argv = [PYTHON, str(ROOT / "tests" / "torch" / "programs" / "save_stall.py"), "1", "3"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    assert len(re.findall(r"median \d+ ms", done.stdout)) == 4


def test_torchdatas_loader_is_stopped_anywhere_in_its_epochs_and_goes_on_at_the_very_sample(
    tmp_path: Path, stable: Stable
) -> None:
    """With its own shuffle and with the library's order, which also goes on at another number of ranks."""
    program, log = ROOT / "tests" / "torch" / "programs" / "stateful_loader.py", tmp_path / "log"
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    assert stable.wait(stable.start([str(program)], env, tmp_path, log), 240) == 0, log.read_text()[-3000:]
    assert "stops 77" in log.read_text()
