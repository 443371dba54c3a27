"""The in-job library without a daemon: iterators, checkpoints, what ships, what it costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import timeit
from pathlib import Path
from typing import Any

import pytest

import swell
from swell.core.ids import RunId
from swell.daemon.reports import EpochReport
from swell.sdk import session, ship
from swell.sdk.checkpoint import Checkpoint, load, save
from swell.sdk.gate import Gate
from swell.sdk.meter import RECENT, Meter, merge
from swell.sdk.outbox import MAX_ENTRIES, MAX_POINTS, Outbox
from swell.sdk.session import Training
from swell.sdk.settings import Place, Settings, read_place, read_settings


def outside(**options: object) -> Training:
    return Training(settings=Settings(), **options)  # type: ignore[arg-type]


class TestOutsideSwell:
    def test_a_loop_runs_to_its_end(self, tmp_path: Path) -> None:
        with outside(epochs=3, checkpoint_dir=tmp_path) as run:
            seen = [(epoch, list(run.steps([1, 2]))) for epoch in run.epochs()]
            run.log(loss=1.0)
        assert seen == [(0, [1, 2]), (1, [1, 2]), (2, [1, 2])]
        assert run.epochs_done == 3
        assert (run.rank, run.world_size, run.local_rank, run.gpus, run.inside) == (0, 1, 0, 0, False)
        assert not run.should_stop()

    def test_plain_calls_do_the_same(self) -> None:
        run = outside()
        for epoch in range(2):
            assert run.start_epoch() == epoch
            run.measure()
            run.end_epoch()
        assert run.epochs_done == 1, "the second one may still be without its checkpoint"
        run.finish()
        assert run.epochs_done == 2

    def test_without_a_number_of_epochs_it_says_what_to_do(self) -> None:
        with pytest.raises(ValueError, match="how many epochs"):
            next(outside().epochs())

    def test_resumes_after_the_last_saved_epoch(self, tmp_path: Path) -> None:
        with outside(epochs=10, checkpoint_dir=tmp_path) as run:
            for epoch in run.epochs():
                run.save({"epoch": epoch})
                if epoch == 3:
                    break
        again = outside(epochs=6, checkpoint_dir=tmp_path)
        assert again.load() == {"epoch": 3}
        assert list(again.epochs()) == [4, 5]

    def test_a_save_within_an_epoch_resumes_at_its_step(self, tmp_path: Path) -> None:
        run = outside(epochs=2, checkpoint_dir=tmp_path)
        for _ in run.epochs():
            for batch in run.steps([10, 11, 12, 13]):
                if batch == 11:
                    run.save("half")
                    break
            break
        again = outside(epochs=2, checkpoint_dir=tmp_path)
        assert again.load() == "half"
        assert [(epoch, list(again.steps([10, 11, 12, 13]))) for epoch in again.epochs()] == [
            (0, [12, 13]),
            (1, [10, 11, 12, 13]),
        ]

    def test_the_package_offers_the_same_calls(self) -> None:
        assert isinstance(swell.training(epochs=1), Training)
        assert swell.start_epoch() == 0
        swell.measure()
        swell.log(loss=2.0)
        assert not swell.should_stop()
        swell.end_epoch()


class TestCheckpoints:
    def test_a_damaged_one_is_passed_over(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        save(tmp_path, Checkpoint(1, 0, "good"))
        newest = save(tmp_path, Checkpoint(2, 0, "bad"))
        newest.write_bytes(newest.read_bytes()[:-3])
        found = load(tmp_path)
        assert found is not None
        assert (found.epochs_done, found.value) == (1, "good")
        assert "damaged" in capsys.readouterr().err

    def test_only_the_last_few_are_kept(self, tmp_path: Path) -> None:
        for epoch in range(6):
            save(tmp_path, Checkpoint(epoch, 0, epoch), keep=2)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "checkpoint-00000004-00000000.pkl",
            "checkpoint-00000005-00000000.pkl",
        ]

    def test_nothing_there_is_no_checkpoint(self, tmp_path: Path) -> None:
        assert load(tmp_path / "missing") is None


class TestGate:
    def test_a_promise_is_given_only_for_what_was_not_begun(self) -> None:
        gate = Gate()
        gate.arrive((3, 0))
        gate.hear((3, 0), False)
        assert gate.word() == ((3, 0), None)
        gate.hear((4, 0), False)
        assert gate.word() == ((3, 0), (4, 0))
        assert gate.would_wait((4, 0))

    def test_a_void_releases(self) -> None:
        gate = Gate()
        gate.arrive((3, 0))
        gate.hear((4, 0), False)
        gate.hear(None, False)
        assert gate.arrive((4, 0))

    def test_waits_no_longer_than_its_patience(self) -> None:
        gate = Gate(patience_s=0.0)
        gate.arrive((3, 0))
        gate.hear((4, 0), False)
        assert gate.arrive((4, 0))
        assert gate.word() == ((4, 0), None)

    def test_leaves_at_the_agreed_position_and_not_before(self) -> None:
        gate = Gate()
        gate.arrive((3, 0))
        gate.hear((5, 0), False)
        gate.hear((5, 0), True)
        assert gate.arrive((4, 0))
        assert not gate.arrive((5, 0))


class TestMeasuring:
    def test_step_and_percentiles(self) -> None:
        meter = Meter()
        meter.begin_epoch()
        for _ in range(RECENT + 10):
            meter.step(4)
        assert meter.steps == RECENT + 10
        assert meter.samples_said == 4 * (RECENT + 10)
        assert 0 < meter.step_s < 1
        assert set(meter.percentiles()) == {"step_p50_s", "step_p95_s", "step_p99_s"}

    def test_measure_costs_less_than_five_microseconds(self) -> None:
        run = outside()
        run.start_epoch()
        best_s = min(timeit.repeat(run.measure, number=20_000, repeat=5)) / 20_000
        assert best_s < 5e-6

    def test_a_long_first_epoch_is_told_once_from_within(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = outside(epochs=2)
        told: list[dict[str, Any]] = []
        for _ in run.epochs():
            for step in run.steps(range(10)):
                run._tell_speed()
                assert not run._outbox.take()["epochs"], "too early, or told before"
                if step == 4 and not told:
                    monkeypatch.setattr(session, "LONG_EPOCH_S", 0.0)
                    run._tell_speed()
                    told += run._outbox.take()["epochs"]
        (entry,) = told
        assert (entry["epoch"], entry["count"]) == (0, 0), "nothing has ended"
        assert entry["epoch_s"] == pytest.approx(10 * entry["step_s"])
        assert EpochReport(**entry).event(RunId(1, 1), 5.0).batching is None

    def test_merged_epochs_weigh_by_count(self) -> None:
        one = {"epoch": 3, "count": 3, "epoch_s": 1.0, "step_s": 0.1, "samples_per_s": 8.0, "metrics": {"a": 1.0}}
        two = {"epoch": 4, "count": 1, "epoch_s": 5.0, "step_s": 0.5, "samples_per_s": 4.0, "metrics": {"b": 2.0}}
        merged = merge(one, two)
        assert (merged["epoch"], merged["count"], merged["epoch_s"]) == (4, 4, 2.0)
        assert merged["metrics"] == {"a": 1.0, "b": 2.0}

    def test_waiting_stays_a_part_of_the_merged_step(self) -> None:
        one, two = adaptive_entry(1, 32, step_s=0.1, sync_s=0.01), adaptive_entry(2, 32, step_s=0.5, sync_s=0.3)
        merged = merge(one, two)
        assert (merged["step_s"], merged["batching"]["sync_s"]) == (pytest.approx(0.3), pytest.approx(0.155))

    def test_steps_of_different_batches_are_never_averaged(self) -> None:
        """The mean would be taken for a step of the last batch: shorter, maybe, than what it waits in one."""
        small, large = adaptive_entry(1, 32, step_s=0.1, sync_s=0.01), adaptive_entry(2, 512, step_s=0.5, sync_s=0.3)
        merged = merge(small, large)
        assert merged == {**large, "count": 2}


def adaptive_entry(epoch: int, local: int, *, step_s: float, sync_s: float) -> dict[str, Any]:
    batching = {"initial": 32, "largest": 1024, "local": local, "sync_s": sync_s}
    speeds = {"epoch_s": 10 * step_s, "step_s": step_s, "samples_per_s": 1.0, "goodput": 1.0}
    setting = {"gpus": 2, "nodes": 1, "gpu_type": "", "batch_size": 2 * local}
    return {"epoch": epoch, "count": 1, **speeds, **setting, "batching": batching, "metrics": {}}


class TestOutbox:
    def test_short_epochs_of_different_batches_are_reported_one_by_one(self) -> None:
        outbox = Outbox()
        for epoch, local in enumerate((16, 16, 32, 64), start=1):
            outbox.add_epoch(adaptive_entry(epoch, local, step_s=0.001, sync_s=0.0))
        entries = outbox.take()["epochs"]
        assert [(entry["count"], entry["batching"]["local"]) for entry in entries] == [(2, 16), (1, 32), (1, 64)]

    def test_memory_is_bounded_and_no_epoch_is_forgotten(self) -> None:
        outbox = Outbox()
        for epoch in range(1, 501):
            outbox.add_epoch({"epoch": epoch, "count": 1, "epoch_s": 2.0, "step_s": 0.1, "samples_per_s": 1.0})
        for at in range(100_000):
            outbox.add_point("loss", float(at), 0.5)
        parcel = outbox.take()
        assert len(parcel["epochs"]) <= MAX_ENTRIES
        assert sum(entry["count"] for entry in parcel["epochs"]) == 500
        assert len(parcel["series"]["loss"]) <= MAX_POINTS

    def test_short_epochs_are_reported_together(self) -> None:
        outbox = Outbox()
        for epoch in range(1, 6):
            outbox.add_epoch({"epoch": epoch, "count": 1, "epoch_s": 0.1, "step_s": 0.0, "samples_per_s": 0.0})
        (entry,) = outbox.take()["epochs"]
        assert (entry["epoch"], entry["count"]) == (5, 5)

    def test_what_did_not_arrive_is_kept_in_order(self) -> None:
        outbox = Outbox()
        outbox.began = {"epoch": 0, "epochs": 2}
        outbox.add_epoch({"epoch": 1, "count": 1, "epoch_s": 2.0, "step_s": 0.0, "samples_per_s": 0.0})
        parcel = outbox.take()
        assert outbox.empty
        outbox.add_epoch({"epoch": 2, "count": 1, "epoch_s": 2.0, "step_s": 0.0, "samples_per_s": 0.0})
        outbox.restore(parcel)
        again = outbox.take()
        assert [entry["epoch"] for entry in again["epochs"]] == [1, 2]
        assert again["began"] == {"epoch": 0, "epochs": 2}


SWELL = {"SWELL_RANK": "3", "SWELL_WORLD_SIZE": "4", "SWELL_LOCAL_RANK": "1", "SWELL_LAUNCHER": "per-gpu"}


class TestPlace:
    @pytest.mark.parametrize(
        ("environ", "place"),
        [
            ({}, Place(0, 1, 0)),
            ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, Place(1, 2, 1)),
            (SWELL, Place(3, 4, 1)),
            (
                {**SWELL, "TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "2"},
                Place(5, 6, 2),
            ),
            ({**SWELL, "HOROVOD_RANK": "1", "HOROVOD_SIZE": "3", "HOROVOD_LOCAL_RANK": "1"}, Place(1, 3, 1)),
            ({**SWELL, "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, Place(2, 3, 0)),
            (
                {
                    "SWELL_RANK": "1",
                    "SWELL_WORLD_SIZE": "2",
                    "SWELL_LAUNCHER": "per-node",
                    "SWELL_NODES": "2",
                    "NODE_RANK": "1",
                    "LOCAL_RANK": "1",
                    "WORLD_SIZE": "4",
                },
                Place(3, 4, 1),
            ),
        ],
    )
    def test_who_started_this_process_decides_its_rank(self, environ: dict[str, str], place: Place) -> None:
        assert read_place(environ) == place

    def test_what_is_no_number_counts_as_not_said(self) -> None:
        assert read_settings({"SWELL_EPOCHS": "many"}).epochs == 0


class TestShipping:
    def run(self, python_path: str, code: str) -> str:
        env = {**os.environ, "PYTHONPATH": python_path}
        done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    CODE = (
        "import swell, kubernetesdlprofile.kubeprofiler\n"
        "with swell.training(epochs=2) as run: print([e for e in run.epochs()], swell.__file__)"
    )

    def test_the_shipped_directory_is_enough(self, tmp_path: Path) -> None:
        shipped = ship.ship(tmp_path)
        assert ship.ship(tmp_path) == shipped
        assert self.run(str(shipped), self.CODE) == f"[0, 1] {shipped}/swell/__init__.py"

    def test_the_installed_package_stays_importable_from_a_job(self, tmp_path: Path) -> None:
        shipped = ship.ship(tmp_path)
        installed = Path(swell.__file__).parent.parent
        code = "import swell, swell.core.ids, swell.sdk; print(swell.sdk.__file__)"
        assert self.run(f"{shipped}:{installed}", code) == f"{shipped}/swell/sdk/__init__.py"

    def test_older_pythons_can_read_it(self) -> None:
        sources = {name: content for name, content in ship.files().items() if name.endswith(".py")}
        assert sources
        for name, content in sources.items():
            ast.parse(content, name, feature_version=(3, 8))


def test_never_takes_a_number_from_the_trainings_own_random() -> None:
    """A seeded training must not depend on how often the daemon was out of reach."""
    found = [
        f"{path.name}: {node.func.attr}"
        for path in Path(session.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "random"
        and node.func.attr != "Random"
    ]
    assert found == []
