"""What a job has written: found, and copied without ever leaving its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.jobfile import outputs
from swell.jobfile.contents import MTIME_S
from swell.jobfile.outputs import FetchError, copy, deliver, disk_use, matching, unchanged, written, wrote_anything


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for root in ("submitted", "work"):
        (tmp_path / root / "src").mkdir(parents=True)
        (tmp_path / root / "src" / "train.py").write_text("1")
        (tmp_path / root / "log.txt").write_text("a")
    work = tmp_path / "work"
    (work / "log.txt").write_text("b")
    (work / "results").mkdir()
    (work / "results" / "model.pt").write_bytes(b"0" * 5000)
    (work / "__pycache__").mkdir()
    (work / "__pycache__" / "train.pyc").write_text("x")
    (work / "secret").symlink_to("/etc/passwd")
    (work / "out").symlink_to("/etc")
    return work


def test_what_it_wrote_is_new_or_changed(job: Path) -> None:
    submitted = job.parent / "submitted"
    assert written(job, submitted) == ["log.txt", "results/model.pt"]
    assert wrote_anything(job, submitted)
    assert not wrote_anything(submitted, submitted)


def test_a_file_on_another_machine_is_unchanged_while_it_has_the_time_of_the_archive(job: Path) -> None:
    submitted = job.parent / "submitted"
    assert unchanged("log.txt", 1, MTIME_S * 10**9, submitted, None)
    assert not unchanged("log.txt", 1, MTIME_S * 10**9 + 1, submitted, None)
    assert not unchanged("log.txt", 2, MTIME_S * 10**9, submitted, None)
    assert unchanged("src/train.py", 1, 5, submitted, job), "here the content tells"
    assert not unchanged("log.txt", 1, MTIME_S * 10**9, submitted, job)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.pt", ["results/model.pt"]),
        ("results", ["results/model.pt"]),
        ("results/", ["results/model.pt"]),
        ("./results/*.pt", ["results/model.pt"]),
        ("*.py", ["src/train.py"]),
        ("secret", []),
        ("out/passwd", []),
        ("../*", []),
    ],
)
def test_patterns_name_files_anywhere_and_never_links(job: Path, pattern: str, found: list[str]) -> None:
    assert matching(job, [pattern]) == found


def test_copies_are_whole_and_nothing_is_written_over_unasked(job: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    assert copy(job, ["results/model.pt"], into, replace=False) == 5000
    assert (into / "results" / "model.pt").read_bytes() == b"0" * 5000
    (into / "log.txt").write_text("mine")
    with pytest.raises(FetchError, match="--replace"):
        copy(job, ["log.txt"], into, replace=False)
    assert (into / "log.txt").read_text() == "mine"
    copy(job, ["log.txt"], into, replace=True)
    assert (into / "log.txt").read_text() == "b"
    assert not list(into.rglob("*.part"))


def test_a_copy_that_was_cut_short_is_made_anew_in_a_directory_of_any_depth(job: Path, tmp_path: Path) -> None:
    into = tmp_path / "far" / "below"
    into.mkdir(parents=True)
    (into / ".log.txt.part").write_text("half of it, and the process was killed")
    assert copy(job, ["log.txt"], into, replace=False) == 1
    assert [path.name for path in into.iterdir()] == ["log.txt"]
    assert copy(job, ["log.txt"], tmp_path / "not" / "there" / "yet", replace=False) == 1


def test_a_file_that_became_a_link_is_not_followed(job: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="symbolic"):
        copy(job, ["secret"], tmp_path / "into", replace=False)


def test_what_is_too_much_is_refused_before_anything_is_written(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_FILES", 1)
    with pytest.raises(FetchError, match="2 files"):
        copy(job, ["log.txt", "results/model.pt"], tmp_path / "into", replace=False)
    assert not (tmp_path / "into").exists()


def test_disk_use_counts_what_is_on_disk(job: Path, tmp_path: Path) -> None:
    assert disk_use(tmp_path / "nothing").bytes == 0
    assert disk_use(job).files == 4
    assert disk_use(job).bytes >= 5000


def test_outputs_go_where_nothing_else_is_written_over(job: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    patterns = ["log.txt", "results/"]
    assert deliver(job, patterns, into, "train-1")[0] == into
    assert deliver(job, patterns, into, "train-2") == (into, ["log.txt", "results/model.pt"], 0)  # the same: left alone
    (job / "log.txt").write_text("other")
    assert deliver(job, patterns, into, "train-3")[0] == into / "train-3"
    (job / "log.txt").write_text("another")
    assert deliver(job, patterns, into, "train-3")[0] == into / "train-3.2"
    assert (into / "log.txt").read_text() == "b"
    assert (into / "train-3" / "log.txt").read_text() == "other"


def test_outputs_are_what_the_job_wrote_not_what_was_submitted(job: Path, tmp_path: Path) -> None:
    submitted = tmp_path / "submitted"
    (submitted / "log.txt").write_text("b")
    names = deliver(job, ["log.txt", "results/"], tmp_path / "into", "train-1", submitted)[1]
    assert names == ["results/model.pt"]


def test_outputs_of_a_job_that_ran_in_place_are_there_already(job: Path) -> None:
    assert deliver(job, ["log.txt"], job, "train-1") == (job, ["log.txt"], 0)
    into = job / "kept"
    assert deliver(job, ["*.txt"], into, "train-1")[1] == ["log.txt"]
    assert deliver(job, ["*.txt"], into, "train-2")[1] == ["log.txt"]  # not the copy of the copy
