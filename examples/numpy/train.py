"""Elastic training with numpy alone: real gradients, shared out over however many workers the run has.

The gradient of a batch is the sum over twelve pieces, always added up in the same order. Workers share the pieces out,
so that one worker or five compute the same weights to the last bit: stop it, resize it, kill it, the final loss is the
same. Run it by hand (`python train.py --epochs 5`) or let Swell do it (`swell submit job.yaml`).
"""

from __future__ import annotations

import argparse
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

import swell

PIECES = 12
INPUTS, HIDDEN, SAMPLES = 16, 24, 1440


class Team:
    """The workers of a run: rank 0 listens, the others come to it. `share` gives everybody what everybody has."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.peers: list[Connection] = []
        if size == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with Listener(address, backlog=size) as listener:
                came = [listener.accept() for _ in range(size - 1)]
            self.peers = [peer for _, peer in sorted(((peer.recv(), peer) for peer in came), key=lambda pair: pair[0])]
        else:
            self.peers = [self._join(address)]
            self.peers[0].send(rank)

    def _join(self, address: tuple[str, int]) -> Connection:
        for _ in range(600):
            try:
                return Client(address)
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise TimeoutError(f"rank 0 did not come to {address}")

    def share(self, mine: list[Any]) -> list[Any]:
        """All workers' lists, one after the other in order of rank."""
        if self.rank == 0:
            everything = mine + [item for peer in self.peers for item in peer.recv()]
            for peer in self.peers:
                peer.send(everything)
            return everything
        self.peers[0].send(mine)
        return list(self.peers[0].recv())

    def my_pieces(self) -> range:
        return range(self.rank * PIECES // self.size, (self.rank + 1) * PIECES // self.size)


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    inputs = rng.normal(size=(SAMPLES, INPUTS))
    teacher = rng.normal(size=(INPUTS, 3))
    return inputs, np.tanh(inputs @ teacher).sum(axis=1, keepdims=True)


def new_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {"hidden": rng.normal(0, 0.4, (INPUTS, HIDDEN)), "out": rng.normal(0, 0.4, (HIDDEN, 1))}


def gradient(weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Summed over the samples of one piece."""
    active = np.tanh(x @ weights["hidden"])
    error = active @ weights["out"] - y
    back = (error @ weights["out"].T) * (1 - active**2)
    return float((error**2).sum()), {"hidden": x.T @ back, "out": active.T @ error}


def train_step(team: Team, weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, rate: float) -> float:
    size = len(x) // PIECES
    parts = [slice(piece * size, (piece + 1) * size) for piece in team.my_pieces()]
    results = team.share([gradient(weights, x[part], y[part]) for part in parts])
    for name in weights:
        total = np.zeros_like(weights[name])
        for _, piece in results:
            total += piece[name]
        weights[name] -= rate / len(x) * total
    return float(sum(loss for loss, _ in results) / len(x))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10, help="in an epoch")
    parser.add_argument("--work-s", type=float, default=0.0, help="pretend that a step takes so long on one worker")
    options = parser.parse_args(argv)

    with swell.training(epochs=options.epochs) as run:
        team = Team(run.rank, run.world_size)
        inputs, targets = make_data()
        weights = run.load(default=new_weights())
        for epoch in run.epochs():
            losses = []
            for batch in run.steps(np.array_split(np.arange(SAMPLES), options.steps)):
                losses.append(train_step(team, weights, inputs[batch], targets[batch], rate=0.05))
                time.sleep(options.work_s / run.world_size)
            loss = sum(losses) / len(losses)
            run.log(loss=loss)
            run.save(weights)
            if run.rank == 0:
                print(f"epoch {epoch} loss {loss!r} workers {run.world_size}", flush=True)


if __name__ == "__main__":
    main()
