"""torchdata's StatefulDataLoader stopped at every place of its epochs in turn, and resumed: the samples of each step
are those of an undisturbed run. Run in the environment with PyTorch; prints how many stops were tried.

Two ways: the loader's own shuffle, which one process restores (`run.steps(loader, restored=True)`), and the library's
order as its `batch_sampler`, which any number of ranks restores from the state of rank 0. torchdata shuffles the epochs
after a resumed one differently than without the stop; the library's order is the same in all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

import swell
import torch
from swell.sdk import session
from swell.sdk.settings import Place

SAMPLES, BATCH, STEPS, EPOCHS = 30, 8, 4, 3  # the last of an epoch's four batches is smaller
Make = Callable[[Any], StatefulDataLoader]


def shuffled(workers: int) -> Make:
    def make(run: Any) -> StatefulDataLoader:
        order = torch.Generator().manual_seed(3)
        return StatefulDataLoader(range(SAMPLES), BATCH, shuffle=True, generator=order, num_workers=workers)

    return make


def ordered(workers: int, every: int = 1) -> Make:
    def make(run: Any) -> StatefulDataLoader:
        sampler = run.batches(SAMPLES, BATCH, seed=3)
        return StatefulDataLoader(
            range(SAMPLES), batch_sampler=sampler, num_workers=workers, snapshot_every_n_steps=every
        )

    return make


SHUFFLED = (shuffled(0), shuffled(2))
"""Without and with processes that fetch ahead."""


def attempt(directory: Path, make: Make, stop_at: tuple[int, int], place: Place) -> list[list[int]]:
    """Of one rank: the samples of each step, until the end or until it has stopped before `stop_at`."""
    run = swell.training(epochs=EPOCHS, checkpoint_dir=directory)
    vars(session)["read_place"] = lambda *_: place
    run._place = place
    run._gate.arrive = lambda at: at < stop_at
    loader, state, seen = make(run), run.load(), []
    if state is not None:
        loader.load_state_dict(state["loader"])
    try:
        for _ in run.epochs():
            for batch in run.steps(loader, restored=True):
                seen.append(batch.tolist())
                if run.should_stop():
                    break
            run.save({"loader": loader.state_dict()})
    except SystemExit:
        pass
    return seen


def flat(parts: Iterable[list[int]]) -> list[int]:
    return [sample for part in parts for sample in part]


def compared(make: Make, sizes: tuple[int, int]) -> int:
    """Stopped on `sizes[0]` ranks at every place, resumed on `sizes[1]`."""
    never, stops = (EPOCHS, 0), 0
    with tempfile.TemporaryDirectory() as directory:
        whole = attempt(Path(directory), make, never, Place(0, 1, 0))
    for stop_at in [(epoch, step) for epoch in range(EPOCHS) for step in range(STEPS)][1:]:
        seen: list[list[int]] = []
        with tempfile.TemporaryDirectory() as directory:
            for world, at in ((sizes[0], stop_at), (sizes[1], never)):
                # Rank 0 comes last: only it writes, and the others must have loaded by then.
                ranks = [
                    attempt(Path(directory), make, at, Place(rank, world, rank)) for rank in reversed(range(world))
                ]
                seen += [flat(parts) for parts in zip(*reversed(ranks), strict=True)]
        same = STEPS * (stop_at[0] + (stop_at[1] > 0)) if make in SHUFFLED else len(whole)
        assert seen[:same] == whole[:same], f"stopped before {stop_at}, {sizes}: other samples\n{seen}\n{whole}"
        for epoch in range(EPOCHS):
            assert sorted(flat(seen[STEPS * epoch : STEPS * (epoch + 1)])) == list(range(SAMPLES))
        stops += 1
    return stops


if __name__ == "__main__":
    stops = sum(compared(make, (1, 1)) for make in SHUFFLED)
    stops += compared(ordered(0), (1, 1)) + compared(ordered(0), (2, 1)) + compared(ordered(0), (1, 2))
    stops += compared(ordered(2), (1, 1)) + compared(ordered(1, every=3), (2, 1))
    print(f"stops {stops}")
