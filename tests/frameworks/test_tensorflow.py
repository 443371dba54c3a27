"""Keras through its callback, and the submission guide's TensorFlow script: stopped once, resumed, nothing lost."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from swell.core.agreement import Agreement
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SWELL_TENSORFLOW_PYTHON") or ROOT / ".venv-tensorflow" / "bin" / "python")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not PYTHON.exists(), reason="no TensorFlow here: `make test-frameworks` makes .venv-tensorflow"),
]
STOPPED = 85
EPOCHS = 60


def environment(tmp_path: Path, sdk: Path, url: str, done: int) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(sdk),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CONFIG": '{"cluster": {"worker": ["127.0.0.1:29401"]}, "task": {"index": 0, "type": "worker"}}',
        "SWELL_URL": url,
        "SWELL_RUN": "1.1",
        "SWELL_RANK": "0",
        "SWELL_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "EPOCHS_TO_BE_DONE": str(EPOCHS),
        "EPOCHS_DONE": str(done),
        "JOB_RESTARTED": "TRUE" if done else "FALSE",
        "BATCH_SIZE": "32",
    }


def stopped_once(tmp_path: Path, script: Path, **more: str) -> str:
    """The log of both attempts."""
    sdk, log = ship.ship(tmp_path / "sdk"), tmp_path / "log"
    with fake_daemon() as daemon, log.open("wb") as output:
        env = {**environment(tmp_path, sdk, daemon.url, 0), **more}
        first = subprocess.Popen([PYTHON, script], env=env, stdout=output, stderr=subprocess.STDOUT)
        limit_s = time.monotonic() + 120
        while not daemon.epochs() and first.poll() is None and time.monotonic() < limit_s:
            time.sleep(0.02)
        daemon.ask()
        assert first.wait(60) == STOPPED, log.read_text()[-3000:]
        done = max(entry["epoch"] for entry in daemon.epochs())
        assert 0 < done < EPOCHS
        daemon.agreement = Agreement()
        env = {**environment(tmp_path, sdk, daemon.url, done), **more}
        second = subprocess.run([PYTHON, script], env=env, stdout=output, stderr=subprocess.STDOUT, timeout=120)
        assert second.returncode == 0, log.read_text()[-3000:]
        assert max(entry["epoch"] for entry in daemon.epochs()) == EPOCHS
    return log.read_text()


def test_keras_with_the_callback_ends_with_the_same_losses(tmp_path: Path) -> None:
    script = ROOT / "examples" / "tensorflow" / "train.py"
    seen = re.findall(r"epoch (\d+) loss (\S+)", stopped_once(tmp_path, script))
    assert [int(epoch) for epoch, _ in seen] == list(range(EPOCHS)), "no epoch lost, none repeated"
    argv = [str(PYTHON), str(script), "--epochs", str(EPOCHS)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "sdk" / ship.digest())}
    alone = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=120).stdout
    assert re.findall(r"epoch (\d+) loss (\S+)", alone) == seen


def test_the_guides_script(tmp_path: Path) -> None:
    script = ROOT / "examples" / "guide" / "profiler_tensorflow.py"
    seen = re.findall(r"done (\d+)", stopped_once(tmp_path, script, TF_USE_LEGACY_KERAS="1"))
    assert [int(epoch) for epoch in seen] == list(range(1, EPOCHS + 1))
