"""The numpy trainer, resized, preempted and killed at random: no epoch lost, none repeated, the same final loss."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sdk import ship

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "numpy" / "train.py"
EPOCH = re.compile(r"epoch (\d+) loss (\S+) workers (\d+)")


def uninterrupted(sdk: Path, epochs: int, steps: int) -> dict[int, str]:
    argv = [sys.executable, str(SCRIPT), "--epochs", str(epochs), "--steps", str(steps)]
    env = {"PYTHONPATH": str(sdk), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    return {int(epoch): loss for epoch, loss, _ in EPOCH.findall(done.stdout)}


def run_commands(commands: int, tmp_path: Path, seed: int) -> None:
    """`commands` stops at random instants, each followed by a start at another size; then to the end."""
    rng = random.Random(seed)
    sdk = ship.ship(tmp_path / "sdk")
    # An attempt gets through about a dozen before it has stopped, more on a busy machine; it must not run out of them.
    epochs, steps = 20 + 60 * commands, 2
    spec = JobSpec(
        name="numpy",
        command=("python", "train.py", "--steps", str(steps), "--work-s", "0.002"),
        launcher=Launcher.PER_GPU,
        gpus=GpuRequest(min=1, max=3),
        epochs=epochs,
    )
    with (
        Stable(sys.executable, ["numpy", "swell.sdk.session", "http.client", "argparse"], [sdk]) as stable,
        fake_daemon() as daemon,
    ):
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=SCRIPT, home=tmp_path, sdk=sdk)
        for _ in range(commands):
            job.start(rng.randint(1, 3))
            job.wait_until_begun()
            time.sleep(rng.expovariate(1 / 0.02))
            job.ask_to_stop()
            codes = job.ended()
            assert set(codes) == {STOPPED}, f"attempt {job.attempt}: {codes} {job.log(0)}"
        job.start(rng.randint(1, 3))
        assert set(job.ended(timeout_s=1200)) == {0}
    seen = [EPOCH.fullmatch(line) for line in job.lines() if line.startswith("epoch")]
    numbers = [int(match[1]) for match in seen if match]
    assert numbers == list(range(epochs)), "each epoch exactly once, in order"
    expected = uninterrupted(sdk, epochs, steps)
    assert {int(match[1]): match[2] for match in seen if match} == expected, "and every loss the same to the last bit"
    assert job.epochs_done == epochs
    assert len({match[3] for match in seen if match}) >= 2, "it did run at several sizes"


def test_resized_at_random_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    run_commands(10, tmp_path, seed=1)


@pytest.mark.slow
def test_a_thousand_random_commands_lose_and_repeat_nothing(tmp_path: Path) -> None:
    run_commands(1000, tmp_path, seed=2)


def test_killed_without_warning_it_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    rng = random.Random(3)
    sdk = ship.ship(tmp_path / "sdk")
    spec = JobSpec(
        name="numpy",
        command=("python", "train.py", "--steps", "2", "--work-s", "0.004"),
        launcher=Launcher.PER_GPU,
        gpus=GpuRequest(min=1, max=2),
        epochs=60,
    )
    with (
        Stable(sys.executable, ["numpy", "swell.sdk.session", "http.client", "argparse"], [sdk]) as stable,
        fake_daemon() as daemon,
    ):
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=SCRIPT, home=tmp_path, sdk=sdk)
        for _ in range(5):
            job.start(rng.randint(1, 2))
            job.wait_until_begun()
            time.sleep(rng.uniform(0.0, 0.1))
            job.kill(signal.SIGKILL)
            assert set(job.ended()) <= {-signal.SIGKILL, 0}
        job.start(1)
        assert set(job.ended()) == {0}
    losses = [EPOCH.fullmatch(line) for line in job.lines() if line.startswith("epoch")]
    expected = uninterrupted(sdk, 60, 2)
    seen = {int(match[1]): match[2] for match in losses if match}
    assert seen.items() <= expected.items(), "an epoch that a kill interrupted is done again, with the same result"
    assert seen[59] == expected[59]
    assert len(expected) - len(seen) <= 5, "a kill between a checkpoint and its line in the log hides one line at most"
