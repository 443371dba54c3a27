"""Which files are a finished checkpoint, and how far it is."""

from __future__ import annotations

import math

import pytest

from swell.shim.checkpoint_files import SETTLE_S, Found, finished, progress_of, visible


def file(path: str, size: int = 10, mtime_ns: int = 1) -> Found:
    return Found(path, size, mtime_ns, inode=hash(path) % 1000)


def names(found: list[Found] | None) -> list[str] | None:
    return None if found is None else [each.path for each in found]


def test_of_the_librarys_files_only_the_newest_counts_and_at_once() -> None:
    found = [file(f"checkpoint-{n:08d}-00000000.pkl") for n in (3, 12, 4)]
    assert names(finished(found, 0.0)) == ["checkpoint-00000012-00000000.pkl"]
    assert progress_of(found, None) == (12, 0)


def test_a_later_step_of_the_same_epoch_is_newer() -> None:
    found = [file("checkpoint-00000000-00000900.pkl"), file("checkpoint-00000000-00001000.pkl")]
    assert names(finished(found, 0.0)) == ["checkpoint-00000000-00001000.pkl"]
    assert progress_of(found, 7) == (0, 1000)


def test_what_is_hidden_is_being_written_or_is_swells_own() -> None:
    found = [file(".checkpoint-00000001-00000000.pkl.77"), file(".swell-checkpoint-1"), file("a/.tmp/x"), file("a/x")]
    assert names(visible(found)) == ["a/x"]


def test_in_a_directory_that_jobs_share_each_jobs_own_one_is_its_own() -> None:
    found = [file("7/model.pt"), file("model.pt"), file("runs/7/model.pt")]
    assert names(visible(found, named=True)) == ["model.pt", "runs/7/model.pt"]
    assert names(visible(found)) == ["7/model.pt", "model.pt", "runs/7/model.pt"]


@pytest.mark.parametrize(("unchanged_s", "whole"), [(0.0, False), (SETTLE_S - 0.1, False), (SETTLE_S, True)])
def test_other_files_count_once_they_have_not_changed_for_a_while(unchanged_s: float, whole: bool) -> None:
    found = [file("model.pt"), file("progress.json")]
    assert names(finished(found, unchanged_s)) == (["model.pt", "progress.json"] if whole else None)


def test_once_nobody_writes_any_more_all_files_count() -> None:
    assert names(finished([file("step-500/weights.bin")], math.inf)) == ["step-500/weights.bin"]


def test_progress_alone_is_no_checkpoint() -> None:
    """The training says how far it is and saves elsewhere: whoever got only this would train garbage."""
    assert finished([file("progress.json")], math.inf) == []
    assert finished([], math.inf) == []


def test_progress_of_the_trainings_own_files_is_what_the_library_noted() -> None:
    assert progress_of([file("model.pt")], 5) == (5, 0)
    assert progress_of([file("model.pt")], None) is None
