"""Trainings that count steps: a loop, checkpoints when they are due, a stop right after one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import swell
from swell.sdk import session
from swell.sdk.leaving import EXIT_STOPPED
from swell.sdk.link import Link
from swell.sdk.order import MAX_SHUFFLED, Batches, Order, share_of, split_batch
from swell.sdk.session import Training
from swell.sdk.settings import Place, Settings
from swell.sdk.steps import REPORT_EVERY_S, StepTraining


def steps(total: int, directory: Path, **options: Any) -> StepTraining:
    return StepTraining(total=total, checkpoint_dir=directory, settings=Settings(), **options)


def train(run: StepTraining, until: int = -1) -> list[int]:
    """Train and save as the documentation shows; stop without a word after step `until`. Returns the steps done."""
    state = run.load(default={"seen": []})
    done = []
    for step in run.loop():
        done.append(step)
        state["seen"].append(step)
        if run.checkpoint_due():
            run.save(state)
        if step == until:
            break
    return done


def resumed_after_25_of_100(directory: Path) -> Training:
    """A training in the epoch of 100 batches in which the one before it was stopped."""
    first = Training(epochs=1, checkpoint_dir=directory, settings=Settings())
    first.start_epoch()
    for batch in first.steps(range(100)):
        if batch == 24:
            first._stop_here = True
            break
    first.save(None)
    second = Training(epochs=1, checkpoint_dir=directory, settings=Settings())
    second.load()
    second.start_epoch()
    return second


class TestTheLoop:
    def test_goes_on_after_the_last_checkpoint(self, tmp_path: Path) -> None:
        assert train(steps(25, tmp_path, save_every=10), until=17) == list(range(18))
        assert train(steps(25, tmp_path, save_every=10)) == list(range(10, 25))
        assert steps(25, tmp_path).load()["seen"] == list(range(25)), "what was trained and lost is trained again, once"
        assert train(steps(25, tmp_path, save_every=10)) == [], "nothing is left"

    def test_asks_for_a_checkpoint_at_the_end(self, tmp_path: Path) -> None:
        train(steps(25, tmp_path))
        assert steps(25, tmp_path).load() == {"seen": list(range(25))}

    def test_without_a_number_of_steps_it_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"how many steps\? Use swell\.training\(steps=1000\)"):
            next(steps(0, tmp_path).loop())

    def test_tokens_end_it_when_there_are_enough(self, tmp_path: Path) -> None:
        run = StepTraining(total=1000, unit="token", checkpoint_dir=tmp_path, settings=Settings())
        for _ in run.loop():
            run.count(300)
            run.save("state")
        assert (run.step, run.done) == (4, 1200)
        again = StepTraining(total=1300, unit="token", checkpoint_dir=tmp_path, settings=Settings())
        assert again.load() == "state"
        assert (again.step, again.done) == (4, 1200), "both counts are in the checkpoint"

    def test_a_rule_by_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = 0.0
        monkeypatch.setattr("swell.sdk.steps.time.monotonic", lambda: now_s)
        run, due = steps(100, tmp_path, save_every_s=10.0), []
        for step in run.loop():
            now_s += 3.0
            if run.checkpoint_due():
                due.append(step)
                run.save(None)
            if step == 9:
                break
        assert due == [3, 7]

    @pytest.mark.parametrize("save_every", [1, 60])
    def test_never_is_each_of_many_checkpoints_an_event(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_every: int
    ) -> None:
        """An hour of steps of 1 s. Rare checkpoints are reported within seconds, frequent ones every 30 s."""
        now_s = 1000.0
        monkeypatch.setattr("swell.sdk.steps.time.monotonic", lambda: now_s)
        inside = Settings(url="http://127.0.0.1:9", run="1.1", checkpoint_dir=str(tmp_path))
        run = StepTraining(total=9999, settings=inside)
        told: list[dict[str, Any]] = []
        monkeypatch.setattr(run, "_open", lambda _: None)
        monkeypatch.setattr(run._outbox, "add_epoch", told.append)
        for step in run.loop():
            now_s += 1.0
            if step % save_every == save_every - 1:
                run.saved()
            run._in_background()
            if step == 3600:
                break
        saves = [entry for entry in told if entry["unsaved"] <= 2]
        assert len(saves) >= 59
        assert len(told) <= 3600 / REPORT_EVERY_S + 65

    def test_a_rule_by_time_is_rank_0s(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("swell.sdk.session.read_place", lambda: Place(rank=1, world_size=2))
        run = steps(100, tmp_path, save_every_s=1e-9)
        next(run.loop())
        assert not run.checkpoint_due()

    @pytest.mark.parametrize("rule", [{"save_every": -1}, {"save_every_s": -1.0}])
    def test_refuses_rules_that_mean_nothing(self, tmp_path: Path, rule: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="at least 0"):
            steps(10, tmp_path, **rule)


class TestStopping:
    def test_leaves_right_after_the_checkpoint_at_the_agreed_step(self, tmp_path: Path) -> None:
        run = steps(100, tmp_path, save_every=50)
        run._gate.hear((0, 7), agreed=True)
        with pytest.raises(SystemExit) as left:
            train(run)
        assert left.value.code == EXIT_STOPPED
        assert run.step == 7
        assert train(steps(9, tmp_path)) == [7, 8], "no step was lost and none is repeated"

    def test_a_rule_of_ones_own_stops_at_its_next_checkpoint(self, tmp_path: Path) -> None:
        run, written = steps(100, tmp_path), []
        run.continue_at(20)
        run._gate.hear((0, 23), agreed=True)

        def body() -> None:
            for step in run.loop():
                if (step + 1) % 10 == 0:
                    written.append(step + 1)
                    run.saved()

        with pytest.raises(SystemExit):
            body()
        assert written == [30]
        assert run.epochs_done == 30

    def test_a_stop_at_the_last_step_is_none(self, tmp_path: Path) -> None:
        run = steps(10, tmp_path)
        run._gate.hear((0, 10), agreed=True)
        assert train(run) == list(range(10))
        run.finish()

    def test_sigterm_alone_is_a_stop_after_this_step(self, tmp_path: Path) -> None:
        run = steps(100, tmp_path)
        run._termination.watch()

        def body() -> None:
            for step in run.loop():
                if step == 3:
                    os.kill(os.getpid(), signal.SIGTERM)
                if run.checkpoint_due():
                    run.save(None)

        try:
            with pytest.raises(SystemExit):
                body()
        finally:
            run._termination.restore()
        assert run.step == 4

    def test_sigterm_with_others_waits_for_their_agreement(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("swell.sdk.session.read_place", lambda: Place(rank=0, world_size=2))
        run = steps(100, tmp_path)
        run._link = Healthy()  # type: ignore[assignment]
        run._termination.asked = True
        run._termination._asked_s = time.monotonic()
        next(run.loop())
        assert not run.checkpoint_due(), "leaving alone would hang the other rank in a collective"
        run._termination._asked_s -= 2 * session.AGREE_S
        assert run.checkpoint_due(), "but SIGKILL is near: a checkpoint of one rank is better than none"


class Healthy:
    healthy = True
    steps = False


class TestChoosingTheUnit:
    def test_by_argument(self) -> None:
        assert isinstance(swell.training(steps=3), StepTraining)
        assert swell.training(tokens=3).unit == "token"
        assert type(swell.training(epochs=3)) is Training
        assert type(swell.training()) is Training

    def test_by_the_job_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name, value in {"SWELL_UNIT": "step", "SWELL_UNITS": "4", "SWELL_CHECKPOINT_DIR": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        run = swell.training()
        assert train(run) == [0, 1, 2, 3]

    def test_only_one(self) -> None:
        with pytest.raises(ValueError, match="in one unit"):
            swell.training(epochs=3, steps=3)


class TestOrder:
    def test_each_sample_once_per_pass_whatever_the_number_of_ranks(self) -> None:
        order, position, seen = Order(103, 8, seed=5), 0, []
        for world_size in (1, 3, 2, 1, 4, 2, 3, 1, 2, 1, 1, 3, 2, 1):
            for rank in range(world_size):
                seen += order.indices(position, rank, world_size)
            position = order.after(position)
        assert position == 103 + 8, "thirteen batches end the pass, the last of them smaller"
        assert sorted(seen[:103]) == list(range(103))
        assert seen[103:] != seen[:8], "each pass has its own order"

    def test_the_same_global_batches_at_any_number_of_ranks(self) -> None:
        one, three = Order(50, 7, seed=1), Order(50, 7, seed=1)
        for position in (0, 7, 49, 50, 99):
            parts = [three.indices(position, rank, 3) for rank in range(3)]
            assert [index for part in parts for index in part] == one.indices(position)

    def test_parts_differ_by_one_at_most(self) -> None:
        sizes = [len(range(64)[share_of(64, rank, 3)]) for rank in range(3)]
        assert sizes == [21, 21, 22]

    @pytest.mark.parametrize(("samples", "batch", "world_size"), [(13, 4, 2), (9, 8, 4), (1001, 8, 4), (17, 16, 8)])
    def test_no_rank_has_an_empty_part_of_a_small_last_batch(self, samples: int, batch: int, world_size: int) -> None:
        """The defect: 13 samples in batches of 4 left one for two ranks, and DDP averaged with nothing, or hung."""
        order = Order(samples, batch, seed=1)
        ranks = [list(Batches(order, lambda: 0, lambda: samples, r, world_size)) for r in range(world_size)]
        parts = list(zip(*ranks, strict=True))  # strict: every rank does as many steps
        assert all(part for step in parts for part in step)
        assert sorted(index for step in parts for part in step for index in part) == list(range(samples))
        assert len(parts) == len(Batches(order, lambda: 0, lambda: samples, 0, world_size)) == -(-samples // batch)
        assert max(sum(map(len, step)) for step in parts) <= batch

    @pytest.mark.parametrize(("samples", "batch", "most"), [(16, 4, 4), (13, 4, 2), (15, 4, 3), (3, 8, 3), (8, 8, 8)])
    def test_more_ranks_than_samples_of_a_batch_are_refused_before_the_first_step(
        self, samples: int, batch: int, most: int
    ) -> None:
        order = Order(samples, batch)
        assert [len(part) for part in Batches(order, lambda: 0, lambda: samples, 0, most)]
        with pytest.raises(ValueError, match=f"Allow at most {most} GPUs in the job file"):
            iter(Batches(order, lambda: 0, lambda: samples, 0, most + 1))

    def test_a_pass_goes_on_as_before_from_any_place_in_it(self) -> None:
        """Also from where an older version, or another batch, has left it: each sample comes once."""
        order = Order(29, 8, shuffle=False)
        for begin in range(29):
            position, seen = begin, []
            while position < 29:
                seen += order.indices(position)
                position = order.after(position)
            assert (seen, position) == (list(range(begin, 29)), 29)

    def test_refuses_what_it_cannot_do(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            Order(0, 1)
        with pytest.raises(ValueError, match="shuffle=False"):
            Order(MAX_SHUFFLED + 1, 1)
        assert Order(10**12, 4, shuffle=False).indices(10**9) == list(range(10**9, 10**9 + 4))


class TestEpochsStoppedWithin:
    """The defect: a sharded loader trained 302 of 400 samples of an epoch after 1 -> 2 ranks."""

    def one_epoch(
        self, directory: Path, world_size: int, stop_after: int, monkeypatch: pytest.MonkeyPatch
    ) -> list[int]:
        """Both ranks of an attempt, one after the other; each stops after `stop_after` steps. Samples they used."""
        used: list[int] = []
        for rank in reversed(range(world_size)):  # rank 0 saves: the others must have loaded by then
            monkeypatch.setattr("swell.sdk.session.read_place", lambda at=rank: Place(rank=at, world_size=world_size))
            run = Training(epochs=1, checkpoint_dir=directory, settings=Settings())
            run.load()
            run.start_epoch()
            for count, batch in enumerate(run.steps(run.batches(400, 8, seed=3)), start=1):
                used += batch
                if count == stop_after:
                    run._stop_here = True
                    break
            run.save("weights")
        return used

    def test_every_sample_exactly_once_through_resizes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        used = self.one_epoch(tmp_path, 1, 13, monkeypatch)
        used += self.one_epoch(tmp_path, 2, 9, monkeypatch)
        used += self.one_epoch(tmp_path, 3, 20, monkeypatch)
        used += self.one_epoch(tmp_path, 1, -1, monkeypatch)
        assert sorted(used) == list(range(400))

    def test_a_loader_of_ones_own_goes_on_at_the_same_share_of_the_epoch(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        second = resumed_after_25_of_100(tmp_path)
        assert next(second.steps(range(50))) == 12, "25 of 100 batches are 12.5 of 50: half of one is repeated"
        assert "run.batches() resumes at the very sample" in capfd.readouterr().err


class TestConstantBatch:
    @pytest.mark.parametrize(
        ("batch", "devices", "at_most", "split"),
        [
            (32, 1, 8, (8, 4)),
            (32, 2, 8, (8, 2)),
            (32, 4, 8, (8, 1)),
            (32, 8, 8, (4, 1)),
            (12, 1, 8, (6, 2)),
            (7, 1, 2, (1, 7)),
        ],
    )
    def test_is_split_into_batch_per_device_and_accumulation(
        self, batch: int, devices: int, at_most: int, split: tuple[int, int]
    ) -> None:
        assert split_batch(batch, devices, at_most) == split
        assert split[0] * split[1] * devices == batch

    def test_that_cannot_be_divided_is_refused(self) -> None:
        with pytest.raises(ValueError, match="global batch of 32 cannot be divided over 3 GPUs"):
            split_batch(32, 3, 8)


def test_it_stops_at_steps_from_its_first_word_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that is agreed on before the first step must not be agreed for the end of an epoch, which never comes."""
    said = []
    monkeypatch.setattr(Link, "start", lambda link: said.append(link.steps))
    settings = Settings(url="http://127.0.0.1:9", run="1.1")
    run = StepTraining(total=5, checkpoint_dir=tmp_path, settings=settings)
    next(run.loop())
    assert said == [True]
    run._termination.restore()


class TestRestoredLoaders:
    def test_a_restored_loader_is_not_passed_over_a_second_time(self, tmp_path: Path) -> None:
        second = resumed_after_25_of_100(tmp_path)
        assert list(second.steps(Restored(range(25, 100), whole=100), restored=True)) == list(range(25, 100))
        assert second._last_batch, "the epoch's end was recognized: its length is that of the whole"


class Restored:
    """As torchdata's StatefulDataLoader after load_state_dict: what is left, with the length of the whole."""

    def __init__(self, left: range, whole: int) -> None:
        self._left, self._whole = left, whole

    def __iter__(self) -> Iterator[int]:
        return iter(self._left)

    def __len__(self) -> int:
        return self._whole


class TestStateOfBatches:
    def test_an_iterator_goes_on_where_another_was_whatever_the_number_of_ranks(self) -> None:
        order = Order(50, 8, seed=2)
        one = iter(Batches(order, lambda: 0, lambda: 50, rank=0, world_size=1))
        first = [next(one) for _ in range(3)]
        left = []
        for rank in range(2):
            other = iter(Batches(order, lambda: 0, lambda: 50, rank=rank, world_size=2))
            other.load_state_dict(one.state_dict())
            left.append(list(other))
        resumed = [a + b for a, b in zip(*left, strict=True)]
        assert resumed == list(one), "the same global batches"
        assert sorted(index for batch in first + resumed for index in batch) == list(range(50))

    def test_the_state_before_the_first_batch_is_where_the_training_is(self) -> None:
        """A loader may save it, and pass over the batches since then by itself once it is restored."""
        order = Order(50, 8, seed=2)
        fresh = iter(Batches(order, lambda: 16, lambda: 50, rank=0, world_size=1))
        other = iter(Batches(order, lambda: 24, lambda: 50, rank=0, world_size=1))
        other.load_state_dict(fresh.state_dict())
        assert next(other) == order.indices(16)
