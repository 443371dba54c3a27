"""Trainings as their users write them, with the real packages: left alone, and then shrunk, preempted and resumed,
grown and shrunk again. No step is lost or repeated, and the final loss is that of a run nobody disturbed.

Eight shapes: nanoGPT, PyTorch's mnist, imagenet and ddp-tutorial, FSDP2, Lightning, Hugging Face's Trainer, Accelerate.
With SWELL_FIGURES=1 the table of docs/figures/training-scripts.md is written anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, TO_BE_STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec, Launcher

ROOT = Path(__file__).resolve().parents[3]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
FIGURES = ROOT / "docs" / "figures" / "training-scripts.md"
FINAL = re.compile(r"final loss ([0-9.]+) (?:steps|epochs) (\d+)")
SAME = 0.001
"""Losses may differ by this share: two ranks sum gradients in another order than one, in single precision."""
COLUMNS = (
    "| in the shape of | lines | 2→1 at; lost | preempted at; lost | 1→2→1 at; lost "
    "| final loss undisturbed | disturbed |"
)
SIZES = (2, 1, 1, 2, 1)
"""Of one training's attempts: shrunk, preempted and resumed, grown, and shrunk again."""


@dataclass(frozen=True, kw_only=True)
class Script:
    path: str
    shape: str
    total: int
    option: str = "--steps"
    unit: str = "step"
    launcher: Launcher = Launcher.PER_GPU
    batch: int = 16
    changed_lines: int = 5

    @property
    def file(self) -> Path:
        return ROOT / self.path


def by_epochs(name: str, shape: str, launcher: Launcher = Launcher.PER_GPU) -> Script:
    return Script(
        path=f"tests/torch/scripts/{name}.py",
        shape=shape,
        total=120,
        option="--epochs",
        unit="epoch",
        launcher=launcher,
    )


SCRIPTS = [
    Script(path="examples/llm-steps/train.py", shape="nanoGPT", total=300),
    by_epochs("mnist", "PyTorch mnist", Launcher.SINGLE),
    by_epochs("imagenet", "PyTorch imagenet"),
    by_epochs("ddp_tutorial", "PyTorch ddp-tutorial"),
    Script(path="examples/pytorch-fsdp/train.py", shape="FSDP2, sharded", total=400, changed_lines=6),
    Script(
        path="examples/lightning-steps/train.py",
        shape="Lightning transformer",
        total=700,
        launcher=Launcher.SINGLE,
    ),
    Script(
        path="examples/huggingface/train.py",
        shape="Hugging Face run_clm (Trainer)",
        total=250,
        option="--max-steps",
    ),
    Script(
        path="examples/accelerate/train.py",
        shape="Accelerate run_clm_no_trainer",
        total=1500,
        changed_lines=6,
    ),
]
HUGGING_FACE = next(script for script in SCRIPTS if "huggingface" in script.path)


@dataclass
class Outcome:
    """Of one training, attempt by attempt."""

    loss: float = 0.0
    stopped: list[int] = field(default_factory=list)  # after this many steps (or epochs)
    lost: list[int] = field(default_factory=list)  # of them, that the next attempt had to do again


def changed_lines(script: Script) -> int:
    lines = script.file.read_text().splitlines()
    return sum("# Swell" in line and not line.startswith(("import", "from")) for line in lines)


@contextmanager
def job_of(home: Path, script: Script, stable: Stable, sdk: Path) -> Iterator[Attempts]:
    home.mkdir(exist_ok=True)
    spec = JobSpec(
        name="x",
        command=("python", script.file.name),
        gpus=GpuRequest(min=1, max=2),
        epochs=script.total,
        unit=script.unit,
        batch_size=script.batch,
        launcher=script.launcher,
    )
    with fake_daemon() as daemon:
        yield Attempts(stable=stable, daemon=daemon, spec=spec, script=script.file, home=home, sdk=sdk)


def run_through(job: Attempts, script: Script, sizes: Sequence[int]) -> Outcome:
    """Each size but the last is stopped soon after it began."""
    outcome = Outcome()
    for size in sizes[:-1]:
        began = started(job, script, size, stop=True)
        if outcome.stopped:
            outcome.lost.append(outcome.stopped[-1] - began)
        assert set(job.ended(timeout_s=240)) == {STOPPED}, job.log(0)[-3000:]
        outcome.stopped.append(int(re.findall(r"stopping as asked after (\d+) ", job.log(0))[-1]))
        assert began < outcome.stopped[-1] < script.total
    began = started(job, script, sizes[-1], stop=False)
    outcome.lost += [at - began for at in outcome.stopped[-1:]]
    assert set(job.ended(timeout_s=240)) == {0}, job.log(0)[-3000:]
    final = FINAL.search(job.log(0))
    assert final is not None, job.log(0)[-3000:]
    assert int(final[2]) == script.total
    outcome.loss = float(final[1])
    return outcome


def started(job: Attempts, script: Script, size: int, *, stop: bool) -> int:
    """Start an attempt; returns where it began."""
    job.start(size, [script.option, str(script.total)], TO_BE_STOPPED if stop else None)
    job.wait_until_begun(240)
    began = [int(body["began"]["epoch"]) for body in list(job.daemon.reports) if body.get("began")]
    assert began, job.log(0)[-3000:]
    return began[0]


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    """Rows by shape; written when all are there and figures are asked for."""
    rows: dict[str, str] = {}
    yield rows
    if os.environ.get("SWELL_FIGURES") and len(rows) == len(SCRIPTS):
        text = FIGURES.read_text()
        head, _, rest = text.partition("\n| in the shape of")
        _, _, after = rest.partition("\n\n")
        lines = [head, COLUMNS, "|-" * (COLUMNS.count("|") - 1) + "|", *rows.values(), "", after]
        FIGURES.write_text("\n".join(lines).rstrip() + "\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.shape)
def test_stopped_and_resized_it_learns_what_it_learns_undisturbed(
    tmp_path: Path, script: Script, table: dict[str, str], stable: Stable, sdk: Path
) -> None:
    with job_of(tmp_path / "undisturbed", script, stable, sdk) as job:
        whole = run_through(job, script, [1])
    with job_of(tmp_path / "disturbed", script, stable, sdk) as job:
        found = run_through(job, script, SIZES)
    print(f"{script.shape}: {whole} {found}")
    table[script.shape] = row(script, whole, found)
    assert found.lost == [0] * (len(SIZES) - 1), "each attempt goes on where the last stopped"
    assert abs(found.loss - whole.loss) <= SAME * whole.loss


def row(script: Script, whole: Outcome, found: Outcome) -> str:
    units = "" if script.unit == "step" else " epochs"
    shrunk, preempted, *resized = found.stopped
    ats = (f"{shrunk}{units}", f"{preempted}{units}", f"{', '.join(map(str, resized))}{units}")
    losts = (found.lost[0], found.lost[1], sum(found.lost[2:]))
    stops = " | ".join(f"{at}; {lost}" for at, lost in zip(ats, losts, strict=True))
    return f"| {script.shape} | {changed_lines(script)} | {stops} | {whole.loss:.6f} | {found.loss:.6f} |"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.shape)
def test_few_lines_are_there_for_swell(script: Script) -> None:
    assert 1 <= changed_lines(script) <= script.changed_lines


def test_a_resume_with_another_global_batch_is_refused_with_a_sentence(
    tmp_path: Path, stable: Stable, sdk: Path
) -> None:
    """Without `fit`, 2 -> 1 GPUs would go on at another place of the data (epoch 3.0 after epoch 6)."""
    script = HUGGING_FACE
    text = script.file.read_text()
    assert "callback.fit(arguments)" in text
    (tmp_path / "train.py").write_text(text.replace("callback.fit(arguments)", "arguments"))
    with job_of(tmp_path, replace(script, batch=0), stable, sdk) as job:
        job.script = tmp_path / "train.py"
        job.start(2, ["--max-steps", "250"], TO_BE_STOPPED)
        assert set(job.ended(timeout_s=240)) == {STOPPED}, job.log(0)[-3000:]
        job.start(1, ["--max-steps", "250"])
        assert set(job.ended(timeout_s=240)) == {1}
        assert "trained with 32 samples per step, and this attempt would use 16" in job.log(0)
