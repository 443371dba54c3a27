"""How long a checkpoint holds training up: written at once, or beside the training. Also proves that what is written is
the state at the moment of the save, though training changes it in place right after.

`python save_stall.py [MILLION_PARAMETERS] [SAVES]` in the environment with PyTorch; prints one line for each way.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import swell
import torch
from swell.sdk.integrations.dcp import ShardedCheckpoints

WAYS = ("save", "save in background", "sharded", "sharded in background")


def made(millions: float) -> tuple[Any, Any]:
    torch.manual_seed(0)
    width = int((millions * 1e6 / 4) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer)
    return model, optimizer


def train(model: Any, optimizer: Any) -> None:
    """Changes weights and moments in place."""
    width = model[0].weight.shape[0]
    model(torch.ones(1, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def stalls(way: str, millions: float, saves: int, directory: Path) -> list[float]:
    """Seconds of each save."""
    model, optimizer = made(millions)
    run = swell.training(steps=saves + 1, checkpoint_dir=directory, keep=1)
    sharded = ShardedCheckpoints(run, model, optimizer, keep=1, background=way.endswith("background"))
    found: list[float] = []
    saved = None
    for _ in run.loop():
        if len(found) == saves:
            break
        if way.startswith("sharded"):
            sharded.save()
        else:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            run.save(state, background=way.endswith("background"))
        found.append(run.save_stall_s)
        saved = model[0].weight.detach().clone()
        train(model, optimizer)
        time.sleep(0.2)
    run.finish()
    check(way, millions, directory, saved)
    return found


def check(way: str, millions: float, directory: Path, saved: Any) -> None:
    model, optimizer = made(millions)
    run = swell.training(steps=9, checkpoint_dir=directory)
    if way.startswith("sharded"):
        assert ShardedCheckpoints(run, model, optimizer).load()
    else:
        model.load_state_dict(run.load()["model"])
    assert torch.equal(model[0].weight, saved), f"{way}: not the state at the moment of the save"


def main(millions: float = 1.0, saves: int = 3) -> None:
    warnings.filterwarnings("ignore")
    for way in WAYS:
        with tempfile.TemporaryDirectory() as directory:
            found = stalls(way, millions, saves, Path(directory))
        print(f"{way}: median {median(found) * 1000:.0f} ms, most {max(found) * 1000:.0f} ms", flush=True)


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((float, int), sys.argv[1:], strict=False)))
