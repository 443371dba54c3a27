"""What examples/pytorch-ddp ends with when nobody disturbs it: losses and weights to compare a disturbed run with."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.sdk.stable import Stable

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "examples" / "pytorch-ddp" / "train.py"
COMPARE = ROOT / "tests" / "torch" / "programs" / "compare_weights.py"
EPOCH = re.compile(r"epoch (\d+) loss (\S+) workers (\d+)")
PRINTED = 2e-6
"""Losses are printed with six digits: equal ones may be rounded apart by one in the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    losses: Sequence[float]  # of each epoch
    weights: Path
    stable: Stable

    def difference(self, weights: Path) -> float:
        """The largest of any weight."""
        return float(_output(self.stable, [str(COMPARE), str(self.weights), str(weights)], weights.parent))


def undisturbed(stable: Stable, directory: Path, epochs: int) -> Reference:
    """In one process."""
    weights = directory / "weights.pt"
    argv = [str(SCRIPT), "--epochs", str(epochs), "--weights", str(weights)]
    losses = [float(loss) for _, loss, _ in EPOCH.findall(_output(stable, argv, directory))]
    assert len(losses) == epochs
    return Reference(losses=losses, weights=weights, stable=stable)


def _output(stable: Stable, argv: Sequence[str], directory: Path) -> str:
    log = directory / f"{Path(argv[0]).parent.name}-{Path(argv[0]).stem}.log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "MASTER_PORT": str(port)}
    assert stable.wait(stable.start(argv, env, directory, log), 240) == 0, log.read_text()
    return log.read_text()
