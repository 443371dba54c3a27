"""Trainings as their users write them, with the real packages: as they are, stopped and resumed, resized 1 -> 2 -> 1.
No step is lost or repeated, and the final loss is that of a run nobody disturbed.

Eight shapes: nanoGPT, PyTorch's mnist, imagenet and ddp-tutorial, FSDP2, Lightning, Hugging Face's Trainer, Accelerate.
With SWELL_FIGURES=1 the table of docs/figures/training-scripts.md is written anew.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[3]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
FIGURES = ROOT / "docs" / "figures" / "training-scripts.md"
FINAL = re.compile(r"final loss ([0-9.]+) (?:steps|epochs) (\d+)")
SAME = 0.01
"""Losses may differ by this share: two ranks sum gradients in another order than one, in single precision."""
COLUMNS = (
    "| in the shape of | lines | preempted at; lost | 1→2→1 at; lost | 2→1 at; lost | final loss undisturbed "
    "| largest difference |"
)
WAYS = {"as is": [1], "preempted": [1, 1], "elastic": [1, 2, 1], "two": [2, 1]}


@dataclass(frozen=True, kw_only=True)
class Script:
    path: str
    shape: str
    modules: tuple[str, ...]
    total: int
    option: str = "--steps"
    unit: str = "step"
    launcher: Launcher = Launcher.PER_GPU
    batch: int = 16
    ahead: int = 20  # of units, before it is stopped
    changed_lines: int = 5

    @property
    def file(self) -> Path:
        return ROOT / self.path


DCP = ("torch", "torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict")


def by_epochs(name: str, shape: str, launcher: Launcher = Launcher.PER_GPU) -> Script:
    return Script(
        path=f"tests/torch/scripts/{name}.py",
        shape=shape,
        modules=("torch",),
        total=400,
        option="--epochs",
        unit="epoch",
        launcher=launcher,
        ahead=5,
    )


SCRIPTS = [
    Script(path="examples/llm-steps/train.py", shape="nanoGPT", modules=("torch",), total=600),
    by_epochs("mnist", "PyTorch mnist", Launcher.SINGLE),
    by_epochs("imagenet", "PyTorch imagenet"),
    by_epochs("ddp_tutorial", "PyTorch ddp-tutorial"),
    Script(path="examples/pytorch-fsdp/train.py", shape="FSDP2, sharded", modules=DCP, total=600, changed_lines=6),
    Script(
        path="examples/lightning-steps/train.py",
        shape="Lightning transformer",
        modules=("lightning.pytorch",),
        total=1500,
        launcher=Launcher.SINGLE,
    ),
    Script(
        path="examples/huggingface/train.py",
        shape="Hugging Face run_clm (Trainer)",
        modules=("torch", "transformers"),
        total=500,
        option="--max-steps",
    ),
    Script(
        path="examples/accelerate/train.py",
        shape="Accelerate run_clm_no_trainer",
        modules=("torch", "accelerate"),
        total=3000,
        changed_lines=6,
    ),
]
HUGGING_FACE = next(script for script in SCRIPTS if "huggingface" in script.path)


@dataclass
class Outcome:
    """Of one script in one way."""

    loss: float
    stopped: list[int] = field(default_factory=list)
    lost: int = 0  # steps (or epochs) between where attempts stopped and where the next ones began


def changed_lines(script: Script) -> int:
    lines = script.file.read_text().splitlines()
    return sum("# Swell" in line and not line.startswith(("import", "from")) for line in lines)


@contextmanager
def job_of(tmp_path: Path, script: Script) -> Iterator[Attempts]:
    sdk = ship.ship(tmp_path / "sdk")
    spec = JobSpec(
        name="x",
        command=("python", script.file.name),
        gpus=GpuRequest(min=1, max=2),
        epochs=script.total,
        unit=script.unit,
        batch_size=script.batch,
        launcher=script.launcher,
    )
    with Stable(PYTHON, list(script.modules), [sdk]) as stable, fake_daemon() as daemon:
        yield Attempts(stable=stable, daemon=daemon, spec=spec, script=script.file, home=tmp_path, sdk=sdk)


def run_through(job: Attempts, script: Script, sizes: Sequence[int]) -> Outcome:
    """Each size but the last is stopped soon after it began."""
    arguments, outcome = [script.option, str(script.total)], Outcome(loss=0.0)
    for index, size in enumerate(sizes):
        job.start(size, arguments)
        began = began_at(job)
        if outcome.stopped:
            outcome.lost += outcome.stopped[-1] - began
        if index == len(sizes) - 1:
            break
        wait_for(job, script, began + script.ahead)
        job.ask_to_stop()
        assert set(job.ended(timeout_s=90)) == {STOPPED}, job.log(0)[-3000:]
        outcome.stopped.append(int(re.findall(r"stopping as asked after (\d+) ", job.log(0))[-1]))
    assert set(job.ended(timeout_s=180)) == {0}, job.log(0)[-3000:]
    final = FINAL.search(job.log(0))
    assert final is not None, job.log(0)[-3000:]
    assert int(final[2]) == script.total
    outcome.loss = float(final[1])
    return outcome


def wait_for(job: Attempts, script: Script, units: int) -> None:
    until_s, place = time.monotonic() + 90, 0 if script.unit == "epoch" else 1
    while time.monotonic() < until_s:
        if any(body["position"][place] >= units for body in list(job.daemon.reports)):
            return
        time.sleep(0.01)
    raise TimeoutError(f"{script.unit} {units} was not reached: {job.log(0)[-3000:]}")


def began_at(job: Attempts) -> int:
    job.wait_until_begun(90)
    return next(int(body["began"]["epoch"]) for body in list(job.daemon.reports) if body.get("began"))


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    """Rows by shape; written when all are there and figures are asked for."""
    rows: dict[str, str] = {}
    yield rows
    if os.environ.get("SWELL_FIGURES") and len(rows) == len(SCRIPTS):
        text = FIGURES.read_text()
        head = text[: text.index("\n|-")].rpartition("\n")[0]
        FIGURES.write_text("\n".join([head, COLUMNS, "|-" * 7 + "|", *rows.values(), ""]))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.shape)
def test_stopped_and_resized_it_learns_what_it_learns_undisturbed(
    tmp_path: Path, script: Script, table: dict[str, str]
) -> None:
    found: dict[str, Outcome] = {}
    for name, sizes in WAYS.items():
        with job_of(tmp_path / name.replace(" ", "-"), script) as job:
            found[name] = run_through(job, script, sizes)
        print(f"{script.shape} {name}: {found[name]}")
    table[script.shape] = row(script, found)
    assert all(0 < at < script.total for outcome in found.values() for at in outcome.stopped)
    assert [outcome.lost for outcome in found.values()] == [0] * len(WAYS), (
        "each attempt goes on where the last stopped"
    )
    losses = [outcome.loss for outcome in found.values()]
    assert max(losses) <= (1 + SAME) * min(losses), losses


def row(script: Script, found: dict[str, Outcome]) -> str:
    units = "" if script.unit == "step" else " epochs"
    stops = [f"{', '.join(map(str, found[way].stopped))}{units}; {found[way].lost}" for way in list(WAYS)[1:]]
    whole = found["as is"].loss
    apart = max(abs(outcome.loss - whole) for outcome in found.values())
    return f"| {script.shape} | {changed_lines(script)} | {' | '.join(stops)} | {whole:.6f} | {apart:.6f} |"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.shape)
def test_few_lines_are_there_for_swell(script: Script) -> None:
    assert 1 <= changed_lines(script) <= script.changed_lines


def test_a_resume_with_another_global_batch_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """Without `fit`, 2 -> 1 GPUs would go on at another place of the data (epoch 3.0 after epoch 6)."""
    script = HUGGING_FACE
    text = script.file.read_text()
    assert "callback.fit(arguments)" in text
    (tmp_path / "train.py").write_text(text.replace("callback.fit(arguments)", "arguments"))
    with job_of(tmp_path, replace(script, batch=0)) as job:
        job.script = tmp_path / "train.py"
        job.start(2, ["--max-steps", "500"])
        wait_for(job, script, 10)
        job.ask_to_stop()
        assert set(job.ended(timeout_s=90)) == {STOPPED}, job.log(0)[-3000:]
        job.start(1, ["--max-steps", "500"])
        assert set(job.ended(timeout_s=90)) == {1}
        assert "trained with 32 samples per step, and this attempt would use 16" in job.log(0)
