"""PyTorch DDP over machines: two, then one, then three. The checkpoint is on a file system that all of them see."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import ROOT, Daemon, daemon, eventually
from ssh.fleet import job
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]
PYTHON = Path(os.environ.get("SWELL_TORCH_PYTHON") or ROOT / ".venv-torch" / "bin" / "python")
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch")
EPOCH = re.compile(r"epoch (\d+) loss (\S+) workers (\d+)")
EPOCHS = 20


@pytest.fixture
def served(tmp_path: Path, user_home: Path) -> Iterator[Daemon]:
    (tmp_path / "swell").mkdir()
    # Epochs here take a fraction of a second: a run may change again after two.
    (tmp_path / "swell" / "config.yaml").write_text("options: {min_run_s: 2.0}\n")
    env = {"HOME": str(user_home), "SSH_AUTH_SOCK": ""}
    with daemon(tmp_path / "swell", gpus=0, args=("--policy", "elastic-fifo"), env=env) as running:
        yield running


def epochs(sh: Shell, number: int, attempts: int) -> list[tuple[int, float, int]]:
    said = "".join(sh("logs", number, "--attempt", attempt, code=None) for attempt in range(1, attempts + 1))
    return [(int(epoch), float(loss), int(workers)) for epoch, loss, workers in EPOCH.findall(said)]


def test_a_training_shrinks_from_two_machines_to_one_and_grows_to_three(
    new_machine: New, served: Daemon, sh: Shell, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    machines = [new_machine(f"gpu{i}", gpus=1, shared=shared) for i in (1, 2, 3)]
    for machine in machines[:2]:
        sh("node", "add", f"root@{machine.address}", "--key", machine.key, "--name", machine.name)
    eventually(lambda: all(served.get(f"/v1/nodes/gpu{i}")["boot_id"] for i in (1, 2)), 60)
    command = [str(PYTHON), "train.py", "--pause-s", "0.3"]
    (sh.work / "train.py").write_text((ROOT / "examples" / "pytorch-ddp" / "train.py").read_text())
    (sh.work / "job.yaml").write_text(
        f"name: ddp\ncommand: {command}\ngpus: 1-3\nlauncher: per-gpu\nuses_library: true\nepochs: {EPOCHS}\n"
        f"checkpoint_dir: {shared}\n"
    )
    sh("submit", "job.yaml")

    def held(gpus: int) -> bool:
        return bool(job(served, 1)["gpus"]["held"] == gpus and job(served, 1)["state"] == "running")

    def done() -> int:
        return int(job(served, 1)["progress"]["epochs_done"])

    eventually(lambda: held(2) and done() >= 2, 120, what="epochs on two machines")
    sh("node", "drain", "gpu2")
    eventually(lambda: held(1), 120, what="it goes on with one machine")
    before = done()
    eventually(lambda: done() > before + 1, 120, what="epochs on one machine")
    sh("node", "uncordon", "gpu2")
    sh("node", "add", f"root@{machines[2].address}", "--key", machines[2].key, "--name", "gpu3")
    eventually(lambda: held(3), 120, what="it grows to three machines")
    eventually(lambda: job(served, 1)["state"] == "completed", 280, what="the training ends")
    seen = epochs(sh, 1, int(job(served, 1)["attempts"]))
    assert [epoch for epoch, _, _ in seen] == list(range(EPOCHS)), "no epoch lost, none repeated"
    assert {workers for _, _, workers in seen} >= {1, 2, 3}
    losses = [loss for _, loss, _ in seen]
    print(f"\nworkers by epoch {[workers for _, _, workers in seen]}; losses {losses[0]:.4g} to {losses[-1]:.4g}")
    assert all(later < 1.5 * earlier + 0.05 for earlier, later in itertools.pairwise(losses))
