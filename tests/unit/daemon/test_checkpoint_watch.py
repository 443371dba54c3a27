"""Checkpoints of scripts without the library are reported when they are whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.daemon.checkpoint_watch import (
    MAX_FILES,
    NEVER_QUIET_S,
    REPORT_EVERY_S,
    CheckpointWatch,
    fingerprint,
)
from swell.shim.checkpoint_files import SETTLE_S

RUN = RunId(1, 1)
SETTLE = int(SETTLE_S)
"""Looks after the one that found the last change, until that counts."""


class Bench:
    """One running script that saves into `directory`, and a watch on it."""

    def __init__(self, directory: Path, **spec: object) -> None:
        allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")
        chosen = JobSpec(name="j", command=("true",), **{"checkpoint_dir": str(directory), **spec})  # type: ignore[arg-type]
        self.now_s = 100.0
        self.committed: list[ev.Event] = []
        self.state: State = replay(
            [
                ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0),
                ev.JobSubmitted(job=1, spec=chosen, at_s=0.0),
                ev.RunPlanned(run=RUN, allocation=allocation, at_s=1.0),
                ev.RunStarted(run=RUN, at_s=2.0),
            ]
        )
        self.watch = CheckpointWatch(lambda: self.state, lambda _: directory, self.commit, lambda: self.now_s)

    async def commit(self, events: Sequence[ev.Event]) -> None:
        self.committed += events
        replay(events, self.state)

    def looks(self, count: int) -> int:
        """Look this often, a second apart. Returns the number of checkpoints that were reported."""
        before = len(self.committed)
        for _ in range(count):
            self.now_s += 1.0
            asyncio.run(self.watch.look())
        return len(self.committed) - before


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_new_file_is_reported_once_when_it_is_stable(bench: Bench, tmp_path: Path) -> None:
    assert bench.looks(3) == 0
    (tmp_path / "a.pt").write_bytes(b"1")
    assert bench.looks(1) == 0  # may still be written
    (tmp_path / "a.pt").write_bytes(b"12")
    assert bench.looks(SETTLE) == 0
    assert bench.looks(1) == 1
    assert bench.looks(5) == 0
    assert bench.committed == [ev.CheckpointSeen(run=RUN, at_s=105.0)]
    run = bench.state.jobs[1].run
    assert run is not None
    assert (run.saved_s, run.boundary_every_s) == (105.0, 103.0)


def test_a_checkpoint_of_several_files_counts_when_the_last_one_is_written(bench: Bench, tmp_path: Path) -> None:
    """As the Trainer of Hugging Face writes it: a run that is stopped between two of them has lost all since the one
    before."""
    bench.looks(1)
    for name in ("model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"):
        (tmp_path / "checkpoint-50").mkdir(exist_ok=True)
        (tmp_path / "checkpoint-50" / name).write_bytes(b"0" * 1000)
        assert bench.looks(SETTLE) == 0
    assert bench.looks(1) == 1


@pytest.mark.parametrize(
    "name",
    [
        "last.ckpt.tmp",
        ".epoch",
        "checkpoint-500.tmp/model.pt",
        "tmp-checkpoint-500/model.pt",
        "tmpab3_x9qz",
        "model_tmp.pt",
        "model.pt.part",
        "state.json.new",
    ],
)
def test_what_is_to_be_renamed_is_no_checkpoint_yet(bench: Bench, tmp_path: Path, name: str) -> None:
    bench.looks(1)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"1")
    assert bench.looks(20) == 0
    (tmp_path / name).rename(tmp_path / "last.ckpt")
    assert bench.looks(1 + SETTLE) == 1


@pytest.mark.parametrize(
    "name",
    ["runs/host/events.out.tfevents.17.host", "lightning_logs/metrics.csv", "train.log", "wandb/run-1/summary.json"],
)
def test_a_log_beside_the_checkpoints_is_none(bench: Bench, tmp_path: Path, name: str) -> None:
    bench.looks(1)
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    for count in range(1, 20):
        (tmp_path / name).write_bytes(b"1" * count)
        assert bench.looks(SETTLE + 1) == 0


def test_what_an_earlier_attempt_left_is_no_news(tmp_path: Path) -> None:
    (tmp_path / "old.pt").write_bytes(b"1")
    assert Bench(tmp_path).looks(5) == 0


def test_a_script_that_saves_all_the_time_is_not_reported_all_the_time(bench: Bench, tmp_path: Path) -> None:
    reported = bench.looks(1)
    for count in range(1, int(REPORT_EVERY_S)):
        (tmp_path / "a.pt").write_bytes(b"1" * count)
        reported += bench.looks(SETTLE + 1)
    assert reported == 4


def rounds(bench: Bench, count: int, save: Callable[[], None]) -> int:
    """Save every two seconds. Returns the number of checkpoints that were reported."""
    reported = 0
    for _ in range(count):
        save()
        reported += bench.looks(2)
    return reported


def test_one_that_never_rests_is_believed_after_a_while_and_then_soon(bench: Bench, tmp_path: Path) -> None:
    """It saves into a new file every two seconds: no pause is long enough to be sure, so the shorter ones must do."""
    bench.looks(1)

    def save() -> None:
        (tmp_path / f"step-{bench.now_s:.0f}.pt").write_bytes(b"1")

    assert rounds(bench, int(NEVER_QUIET_S) // 2, save) == 0
    assert rounds(bench, 1, save) == 1
    stop(bench)
    assert rounds(bench, 1, save) == 1
    assert saved_s(bench) == bench.now_s - 1.0
    bench.looks(3 * SETTLE)  # it rests again: its files have the time to settle
    save()
    assert bench.looks(SETTLE) == 0
    assert bench.looks(1) == 1


@pytest.mark.parametrize("renamed", [False, True])
def test_a_file_that_is_written_again_proves_that_the_save_before_was_over(
    bench: Bench, tmp_path: Path, renamed: bool
) -> None:
    bench.looks(1)

    def save() -> None:
        (tmp_path / ".new").write_bytes(b"1" * int(bench.now_s))
        (tmp_path / ".new").rename(tmp_path / "a.pt") if renamed else (tmp_path / "a.pt").write_bytes(b"1")

    assert rounds(bench, 1, save) == 0
    assert rounds(bench, 1, save) == 1


def test_a_stop_that_waits_for_the_next_checkpoint_hears_of_it_at_once(bench: Bench, tmp_path: Path) -> None:
    bench.looks(1)
    (tmp_path / "a.pt").write_bytes(b"1")
    assert bench.looks(1 + SETTLE) == 1
    replay([ev.RunStopRequested(run=RUN, why=ev.StopWhy.PREEMPTED, at_s=bench.now_s)], bench.state)
    (tmp_path / "a.pt").write_bytes(b"22")
    assert bench.looks(1 + SETTLE) == 1


def stop(bench: Bench) -> None:
    replay([ev.RunStopRequested(run=RUN, why=ev.StopWhy.RESIZING, at_s=bench.now_s)], bench.state)


def saved_s(bench: Bench) -> float | None:
    run = bench.state.jobs[1].run
    assert run is not None
    return run.saved_s


def test_a_checkpoint_from_before_a_stop_is_never_taken_for_one_after_it(bench: Bench, tmp_path: Path) -> None:
    """It was not reported at once, as scripts that save all the time are not."""
    bench.looks(1)
    (tmp_path / "a.pt").write_bytes(b"1")
    assert bench.looks(1 + SETTLE) == 1
    (tmp_path / "a.pt").write_bytes(b"22")
    assert bench.looks(10) == 0
    stop(bench)
    assert bench.looks(1) == 1
    assert saved_s(bench) == 103.0 + SETTLE
    (tmp_path / "a.pt").write_bytes(b"333")
    assert bench.looks(1 + SETTLE) == 1
    assert saved_s(bench) == 114.0 + SETTLE


def test_the_last_checkpoint_counts_before_the_end_is_recorded(bench: Bench, tmp_path: Path) -> None:
    bench.looks(1)
    (tmp_path / "a.pt").write_bytes(b"1")
    bench.looks(1 + SETTLE)
    (tmp_path / "a.pt").write_bytes(b"22")
    assert bench.looks(10) == 0
    (tmp_path / "a.pt").write_bytes(b"333")  # half of one, perhaps: nobody has seen it stable
    bench.looks(1)
    asyncio.run(bench.watch.ended(RUN, whole=False))
    assert saved_s(bench) == 103.0 + SETTLE


def test_what_a_script_saves_when_it_is_told_to_end_counts(bench: Bench, tmp_path: Path) -> None:
    """It left by itself, after its save: nothing of it can be half written."""
    bench.looks(1)
    (tmp_path / "a.pt").write_bytes(b"1")
    bench.looks(1 + SETTLE)
    (tmp_path / "a.pt").write_bytes(b"22")
    bench.now_s += 7.5
    asyncio.run(bench.watch.ended(RUN, whole=True))
    assert saved_s(bench) == bench.now_s


def test_a_file_that_is_rewritten_all_the_time_is_no_obstacle(bench: Bench, tmp_path: Path) -> None:
    bench.looks(1)
    for count in range(4):
        (tmp_path / "epoch").write_text(str(count))
        bench.looks(1)
    assert len(bench.committed) == 1


def test_a_training_with_the_library_is_left_to_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, uses_library=True)
    bench.looks(1)
    (tmp_path / "a.pt").write_bytes(b"1")
    assert bench.looks(2 + SETTLE) == 0


def test_a_directory_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "none") == {}


def test_a_huge_directory_is_looked_at_as_far_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swell.daemon.checkpoint_watch.MAX_FILES", 3)
    for name in "abcde":
        (tmp_path / name).write_text(name)
    assert len(fingerprint(tmp_path)) == 3 < MAX_FILES
