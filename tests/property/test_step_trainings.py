"""Trainings by steps under random stops and resizes: the library's loop, gate and order of samples against the daemon's
agreement, in one process. For voluntary changes no step is lost, every sample of every pass is used exactly once, and
the result is that of a training nobody disturbed. Checkpoints are written at once, or beside the training: then some
are in flight when it is asked to stop, and when it is killed."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swell.core.agreement import Agreement
from swell.sdk.order import Order
from swell.sdk.settings import Place, Settings
from swell.sdk.steps import StepTraining

CHANGES = max(60, min(500, int(os.environ.get("SWELL_EXAMPLES", "0"))))
"""Stops and resizes: 60 at every run, 500 with SWELL_EXAMPLES."""


class Later:
    """A write that somebody does at some time: the thread of the library, as far as a training can tell."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._work: Callable[[], Any] | None = partial(work, *arguments)

    def done(self) -> bool:
        return self._work is None

    def exception(self) -> None:
        return None

    def result(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


class Rank:
    """One rank: its training, and the weights that all ranks have alike."""

    def __init__(self, number: int, world: int, case: dict[str, int], directory: Path) -> None:
        self.run = StepTraining(
            total=case["steps"], save_every=case["save_every"], checkpoint_dir=directory, settings=Settings()
        )
        self.run._place = Place(number, world, number)
        self.state: dict[str, Any] = self.run.load(default={"weight": 0.0, "used": []})
        self.batches = iter(self.run.batches(case["samples"], case["batch"], seed=case["seed"]))
        self.run._gate.begun = (0, self.run.step)  # as `_open` does where there is a daemon
        self.run._gate.patience_s = 0.0  # whoever would wait for an answer here would wait for ever
        self.steps = self.run.loop()
        self.left = self.finished = False
        self.background = bool(case["background"])
        self.write: Later | None = None
        if self.background:
            self.run._saving.submit = self.submit  # type: ignore[method-assign]

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Later:
        assert self.write is None or self.write.done(), "at most one is in flight"
        self.write = Later(work, *arguments)
        return self.write

    def begin(self) -> list[int] | None:
        """This rank's samples of its next step; None: it has left, or the training is over."""
        try:
            next(self.steps)
        except StopIteration:
            self.finished = True
        except SystemExit:
            self.left = True
        if self.left or self.finished:
            return None
        part = next(self.batches)
        assert part, "every rank has something to do in every step"
        return part

    def end(self, samples: list[int]) -> None:
        """The step with the samples of all ranks, as after an all-reduce; then the checkpoint, if one is due."""
        batch = sorted(samples)
        self.state["weight"] = 0.9 * self.state["weight"] + sum(batch) / len(batch)
        self.state["used"] += batch
        if self.run.checkpoint_due():
            self.run.save(self.state, background=self.background)
            self.state["used"] = list(self.state["used"])  # what is being written must be a copy

    def check_what_counts(self) -> None:
        """Only what is on disk."""
        kept = StepTraining(total=1, checkpoint_dir=self.run.checkpoint_dir, settings=Settings())
        kept.load()
        assert self.run._saved_done <= kept.done


def attempt(
    world: int, case: dict[str, int], directory: Path, stop_after: int, rng: random.Random, kill_after: int = -1
) -> Iterator[Rank]:
    """One attempt on `world` ranks; a stop is asked for after `stop_after` of its steps (-1: never), and it is killed
    after `kill_after`, with whatever is in flight."""
    ranks = [Rank(number, world, case, directory) for number in range(world)]
    agreement, done = Agreement(), 0
    while True:
        for index in rng.sample(range(world), world):
            agreement = talk(agreement, ranks[index], index, world)
        parts = [rank.begin() for rank in ranks]
        if any(part is None for part in parts):
            assert all(part is None for part in parts), "all ranks leave at the same step, or none does"
            yield from ranks
            return
        if done == kill_after:
            yield from ranks
            return
        if done == stop_after:
            agreement = agreement.ask()
        if (write := ranks[0].write) is not None and rng.random() < 0.2:
            write.result()
        samples = [sample for part in parts for sample in part or ()]
        for rank in reversed(ranks):  # rank 0 saves last: the others must not wait for it
            for index in rng.sample(range(world), world):
                agreement = talk(agreement, ranks[index], index, world)
            rank.end(samples)
        if done % 7 == 0:
            ranks[0].check_what_counts()
        done += 1


def talk(agreement: Agreement, rank: Rank, number: int, world: int) -> Agreement:
    """One poll of a rank and its answer."""
    begun, promised = rank.run._gate.word()
    agreement = agreement.hear(rank=number, position=begun, world_size=world, ack=promised, steps=True)
    if agreement.decided is not None and not agreement.confirmed:
        agreement = agreement.confirm()
    view = agreement.view()
    rank.run._gate.hear(view.at if view else None, bool(view and view.agreed))
    return agreement


def undisturbed(case: dict[str, int], directory: Path) -> dict[str, Any]:
    (rank,) = attempt(1, case, directory, -1, random.Random(0))
    assert rank.finished
    return rank.state


def worlds(case: dict[str, int]) -> list[int]:
    """Numbers of ranks, up to three, over which every batch can be divided."""
    found = []
    for world in (1, 2, 3):
        with suppress(ValueError):
            Order(case["samples"], case["batch"]).check(world)
            found.append(world)
    return found


def check(seed: int, directory: Path) -> int:
    """One training with random changes; returns how many it had."""
    rng = random.Random(seed)
    samples = rng.randint(10, 60)
    case = {
        "steps": rng.randint(20, 120),
        "save_every": rng.randint(1, 100),
        "samples": samples,
        "batch": rng.randint(3, 10),
        "seed": seed,
        "background": rng.randint(0, 1),
    }
    expected = undisturbed(case, directory / "expected")
    changes = last_step = 0
    ranks: list[Rank] = []
    while not (ranks and ranks[0].finished):
        stop_after = rng.randint(0, 30) if rng.random() < 0.8 else -1
        kill_after = rng.randint(0, 30) if rng.random() < 0.15 else -1
        ranks = list(attempt(rng.choice(worlds(case)), case, directory / "changed", stop_after, rng, kill_after))
        resumed_from = ranks[0].run
        if not ranks[0].left and not ranks[0].finished:
            ranks[0].check_what_counts()
            last_step = 0  # it was killed, and goes back to its last checkpoint
        if ranks[0].left:
            changes += 1
            assert resumed_from.step == resumed_from.done >= last_step
            kept = StepTraining(total=1, checkpoint_dir=directory / "changed", settings=Settings())
            kept.load()
            assert kept.step == resumed_from.step, "no step is lost: the checkpoint covers the very last one"
            last_step = kept.step
    state = ranks[0].state
    assert state["used"] == expected["used"], "the same samples in the same steps"
    assert state["weight"] == expected["weight"], "the same result, to the last bit"
    whole = len(state["used"]) // samples
    for number in range(whole):
        used = Counter(state["used"][number * samples : (number + 1) * samples])
        assert used == Counter(range(samples)), "every sample of a pass exactly once"
    return changes


def test_no_step_is_lost_and_every_sample_is_used_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    changes = seed = 0
    while changes < CHANGES:
        changes += check(seed, tmp_path / str(seed))
        seed += 1
    print(f"{changes} stops and resizes in {seed} trainings, 0 steps lost")
