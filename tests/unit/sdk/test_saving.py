"""Checkpoints that are written beside the training: they count once they are on disk, and nobody leaves before."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from swell.sdk.checkpoint import load
from swell.sdk.settings import Settings
from swell.sdk.steps import StepTraining


def training(directory: Path, steps: int = 9) -> StepTraining:
    return StepTraining(total=steps, save_every=1, checkpoint_dir=directory, settings=Settings())


def after_steps(run: StepTraining, count: int) -> Any:
    """The loop, in the middle of step `count`."""
    loop = run.loop()
    for _ in range(count):
        next(loop)
    return loop


def test_a_save_in_the_background_is_of_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    run = training(tmp_path)
    state = [1, 2, 3]
    after_steps(run, 1)
    run.save(state, background=True)
    state[0] = 99
    run._saving.wait()
    kept = load(tmp_path)
    assert kept is not None
    assert (kept.value, kept.step) == ([1, 2, 3], 1)


def test_it_counts_once_it_is_on_disk_and_not_before(tmp_path: Path) -> None:
    run, write = training(tmp_path), Future[None]()
    loop = after_steps(run, 3)
    run.saved_when(write)
    assert (run.step, run.epochs_done) == (3, 0)
    next(loop)
    assert run.epochs_done == 0
    write.set_result(None)
    next(loop)
    assert run.epochs_done == 3, "not the steps that were done meanwhile"


def test_a_stop_waits_for_the_save_in_flight(tmp_path: Path) -> None:
    run, write = training(tmp_path), Future[None]()
    loop = after_steps(run, 2)
    run.saved_when(write)
    run._stop_here = True
    left = threading.Event()

    def leaves() -> None:
        with pytest.raises(SystemExit):
            next(loop)
        left.set()

    thread = threading.Thread(target=leaves, daemon=True)
    thread.start()
    assert not left.wait(0.1)
    write.set_result(None)
    assert left.wait(30.0)
    assert run.epochs_done == 2


def test_the_end_and_the_next_save_wait_for_it_too(tmp_path: Path) -> None:
    run = training(tmp_path, steps=3)
    for step in run.loop():
        run.save({"step": step}, background=True)
    run.finish()
    kept = load(tmp_path)
    assert kept is not None
    assert (kept.value, run.epochs_done) == ({"step": 2}, 3)


def test_code_after_the_loop_finds_the_last_checkpoint_written(tmp_path: Path) -> None:
    """Else `destroy_process_group` there would break a sharded save that is under way: the last one was lost."""
    run, write, after = training(tmp_path, steps=1), Future[None](), threading.Event()

    def trains() -> None:
        for _ in run.loop():
            run.saved_when(write)
        after.set()

    thread = threading.Thread(target=trains, daemon=True)
    thread.start()
    assert not after.wait(0.1)
    write.set_result(None)
    assert after.wait(30.0)
    assert run.epochs_done == 1


def test_what_a_write_failed_with_is_raised_in_the_training_and_nothing_is_counted(tmp_path: Path) -> None:
    run, write = training(tmp_path), Future[None]()
    after_steps(run, 1)
    run.saved_when(write)
    write.set_exception(OSError(28, "No space left on device"))
    run._in_background()
    with pytest.raises(OSError, match="No space left"):
        run.save({}, background=True)
    assert run.epochs_done == 0


def test_how_long_a_save_held_training_up_is_known(tmp_path: Path) -> None:
    run = training(tmp_path)
    after_steps(run, 1)
    run.save({"x": bytes(1000)})
    assert run.save_stall_s > 0.0
