"""DeepSpeed, left alone and then preempted and resumed; without ZeRO, whose files load on as many ranks only, also
shrunk and grown. No step is lost or repeated, and the final loss is that of a run nobody disturbed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, TO_BE_STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sdk import ship

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("SWELL_DEEPSPEED_PYTHON") or ROOT / ".venv-deepspeed" / "bin" / "python")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not PYTHON.exists(), reason="no DeepSpeed here: `make test-frameworks` makes .venv-deepspeed"),
]
SCRIPT = ROOT / "examples" / "deepspeed" / "train.py"
STEPS = 200
SAME = 0.001
"""Losses may differ by this share: two ranks sum gradients in another order than one, in single precision."""


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stable]:
    # Not DeepSpeed itself: it writes to stdout, and looks for accelerators in the environment of each training.
    with Stable(str(PYTHON), ("torch", "torch._dynamo"), [_sdk(tmp_path_factory)]) as started:
        yield started


def _sdk(made: pytest.TempPathFactory) -> Path:
    return ship.ship(made.getbasetemp() / "sdk")


def trained(home: Path, stable: Stable, sdk: Path, sizes: Sequence[int], stage: int) -> tuple[float, list[int]]:
    """(final loss, steps done at each stop). Each attempt but the last is stopped soon after it began."""
    home.mkdir()
    spec = JobSpec(
        name="x",
        command=("python", SCRIPT.name),
        gpus=GpuRequest(min=1, max=2),
        epochs=STEPS,
        unit="step",
        batch_size=24,
        launcher=Launcher.PER_GPU,
        env={"TORCH_EXTENSIONS_DIR": str(PYTHON.parents[1] / "extensions"), "PATH": f"{PYTHON.parent}:/usr/bin:/bin"},
    )
    stops: list[int] = []
    with fake_daemon() as daemon:
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=SCRIPT, home=home, sdk=sdk)
        for index, size in enumerate(sizes):
            last = index == len(sizes) - 1
            job.start(size, ["--steps", str(STEPS), "--stage", str(stage)], None if last else TO_BE_STOPPED)
            job.wait_until_begun(300)
            began = [int(body["began"]["epoch"]) for body in list(daemon.reports) if body.get("began")]
            assert began[:1] == (stops[-1:] or [0]), f"it goes on where it stopped: {job.log(0)[-3000:]}"
            assert set(job.ended(timeout_s=300)) == {0 if last else STOPPED}, job.log(0)[-3000:]
            stops += [int(at) for at in re.findall(r"stopping as asked after (\d+) ", job.log(0))[-1:]]
        final = re.search(rf"final loss ([0-9.]+) steps {STEPS}\b", job.log(0))
    assert final is not None, job.log(0)[-3000:]
    return float(final[1]), stops


@pytest.mark.parametrize(("stage", "sizes"), [(0, [2, 1, 1, 2, 1]), (2, [2, 2, 2])])
def test_stopped_it_learns_what_it_learns_undisturbed(
    tmp_path: Path, stable: Stable, tmp_path_factory: pytest.TempPathFactory, stage: int, sizes: list[int]
) -> None:
    sdk = _sdk(tmp_path_factory)
    whole, _ = trained(tmp_path / "undisturbed", stable, sdk, sizes[-1:], stage)
    found, stops = trained(tmp_path / "disturbed", stable, sdk, sizes, stage)
    print(f"ZeRO {stage}: undisturbed {whole}, disturbed {found}, stopped after {stops} steps")
    assert len(stops) == len(sizes) - 1
    assert stops == sorted(set(stops))
    assert abs(found - whole) <= SAME * whole
