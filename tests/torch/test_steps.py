"""Trainings that count steps, as their users write them, with the real packages: as they are, stopped and resumed, and
resized 1 -> 2 -> 1. No step is lost or repeated, and the final loss is that of a run nobody disturbed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
FINAL = re.compile(r"final loss ([0-9.]+) steps (\d+)")
SAME = 0.01
"""Losses may differ by this share: two ranks sum gradients in another order than one, in single precision."""
CHANGED_LINES = {"accelerate": 6}
"""Beside the import; five where nothing else is written here."""


@contextmanager
def job_of(
    tmp_path: Path, example: str, modules: list[str], steps: int, batch: int, launcher: Launcher
) -> Iterator[Attempts]:
    script = ROOT / "examples" / example / "train.py"
    sdk = ship.ship(tmp_path / "sdk")
    spec = JobSpec(
        name="x",
        command=("python", script.name),
        gpus=GpuRequest(min=1, max=2),
        epochs=steps,
        unit="step",
        batch_size=batch,
        launcher=launcher,
    )
    with Stable(PYTHON, modules, [sdk]) as stable, fake_daemon() as daemon:
        yield Attempts(stable=stable, daemon=daemon, spec=spec, script=script, home=tmp_path, sdk=sdk)


def run_through(job: Attempts, sizes: Sequence[int], arguments: list[str]) -> tuple[float, list[int]]:
    """Each size but the last is stopped soon after it began. Returns the final loss and where each attempt stopped."""
    stopped_at: list[int] = []
    for size in sizes[:-1]:
        job.start(size, arguments)
        wait_for_step(job, (stopped_at[-1] if stopped_at else 0) + 20)
        job.ask_to_stop()
        assert set(job.ended(timeout_s=90)) == {STOPPED}, job.log(0)[-3000:]
        stopped_at.append(int(re.findall(r"stopping as asked after (\d+) steps", job.log(0))[-1]))
    job.start(sizes[-1], arguments)
    began = began_at(job)
    assert set(job.ended(timeout_s=180)) == {0}, job.log(0)[-3000:]
    final = FINAL.search(job.log(0))
    assert final is not None, job.log(0)[-3000:]
    assert int(final[2]) == job.spec.epochs
    if stopped_at:
        assert began == stopped_at[-1], "the last attempt resumes at the very step where the one before it stopped"
    return float(final[1]), stopped_at


def wait_for_step(job: Attempts, step: int) -> None:
    until_s = time.monotonic() + 90
    while time.monotonic() < until_s:
        if any(body["position"][1] >= step for body in list(job.daemon.reports)):
            return
        time.sleep(0.01)
    raise TimeoutError(f"step {step} was not reached: {job.log(0)[-3000:]}")


def began_at(job: Attempts) -> int:
    job.wait_until_begun(90)
    return next(int(body["began"]["epoch"]) for body in job.daemon.reports if body.get("began"))


CASES = [
    pytest.param("accelerate", ["torch", "accelerate"], ["--steps", "3000"], 3000, Launcher.PER_GPU, id="accelerate"),
    pytest.param("llm-steps", ["torch"], ["--steps", "600"], 600, Launcher.PER_GPU, id="llm-steps"),
    pytest.param(
        "huggingface", ["torch", "transformers"], ["--max-steps", "500"], 500, Launcher.PER_GPU, id="huggingface"
    ),
]


@pytest.mark.parametrize(("example", "modules", "arguments", "steps", "launcher"), CASES)
def test_stopped_and_resized_it_learns_what_it_learns_undisturbed(
    tmp_path: Path, example: str, modules: list[str], arguments: list[str], steps: int, launcher: Launcher
) -> None:
    losses = {}
    for name, sizes in {"as is": [1], "preempted": [1, 1], "elastic": [1, 2, 1], "two": [2, 1]}.items():
        with job_of(tmp_path / name.replace(" ", "-"), example, modules, steps, 16, launcher) as job:
            losses[name], stopped = run_through(job, sizes, arguments)
        print(f"{example} {name}: stopped at {stopped}, final loss {losses[name]:.6f}")
        assert all(0 < step < steps for step in stopped)
    assert max(losses.values()) <= (1 + SAME) * min(losses.values()), losses


@pytest.mark.parametrize("example", ["llm-steps", "huggingface", "accelerate"])
def test_few_lines_are_there_for_swell(example: str) -> None:
    text = (ROOT / "examples" / example / "train.py").read_text()
    marked = [line for line in text.splitlines() if "# Swell" in line and not line.startswith(("import", "from"))]
    assert 1 <= len(marked) <= CHANGED_LINES.get(example, 5)


def test_a_resume_with_another_global_batch_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """Without `fit`, 2 -> 1 GPUs would go on at another place of the data (epoch 3.0 after epoch 6)."""
    text = (ROOT / "examples" / "huggingface" / "train.py").read_text()
    assert "callback.fit(arguments)" in text
    (tmp_path / "train.py").write_text(text.replace("callback.fit(arguments)", "arguments"))
    with job_of(tmp_path, "huggingface", ["torch", "transformers"], 500, 0, Launcher.PER_GPU) as job:
        job.script = tmp_path / "train.py"
        job.start(2, ["--max-steps", "500"])
        wait_for_step(job, 10)
        job.ask_to_stop()
        assert set(job.ended(timeout_s=90)) == {STOPPED}, job.log(0)[-3000:]
        job.start(1, ["--max-steps", "500"])
        assert set(job.ended(timeout_s=90)) == {1}
        assert "trained with 32 samples per step, and this attempt would use 16" in job.log(0)
