"""What goes with a removed job, and what stays."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from swell.shim.leftovers import Leftovers, _open_up


@pytest.fixture
def left(tmp_path: Path) -> Leftovers:
    for name in (
        *("runs/7.1/0/log", "runs/7.12/0/log", "runs/77.1/0/log", "runs/notify"),
        *("work/7/train.py", "work/.7-ab_c1234/train.py", "work/70/train.py", "work/7-backup/x"),
        *("checkpoints/7/last.pt", "checkpoints/7.old/last.pt", "checkpoints/07/last.pt", "checkpoints/77/last.pt"),
        "work/1763294400123/x",  # of a job, it would be the 10^12th
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return Leftovers(runs_dir=tmp_path / "runs", job_dirs=(tmp_path / "work", tmp_path / "checkpoints"))


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink())


def test_never_deletes_what_is_not_the_jobs_own(left: Leftovers, tmp_path: Path) -> None:
    assert left.kept() == [7, 70, 77]
    left.delete(7)
    assert left.kept() == [70, 77]
    assert files(tmp_path) == [
        *("checkpoints/07/last.pt", "checkpoints/7.old/last.pt", "checkpoints/77/last.pt"),
        *("runs/77.1/0/log", "runs/notify", "work/1763294400123/x", "work/7-backup/x", "work/70/train.py"),
    ]


def test_never_follows_a_link(left: Leftovers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "set.bin").write_text("x")
    (tmp_path / "work/7/data").symlink_to(data)
    (tmp_path / "checkpoints/70").symlink_to(data)
    left.delete(7)
    left.delete(70)
    assert left.kept() == [77]
    assert files(data) == ["set.bin"]


def test_deleting_goes_on_where_it_was_cut_short(left: Leftovers, tmp_path: Path) -> None:
    (tmp_path / "work/7/train.py").unlink()
    (tmp_path / "runs/7.1/0/log").unlink()
    left.delete(7)
    left.delete(7)
    left.delete(1234)
    assert left.kept() == [70, 77]


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def delete_as_a_plain_user(root: Path) -> str:
    """In a process that modes of files bind, also if the tests run as root; what it raised."""
    program = (
        "import pathlib, sys; from swell.shim.leftovers import Leftovers; root = pathlib.Path(sys.argv[1]);"
        "Leftovers(runs_dir=root / 'runs', job_dirs=(root / 'work', root / 'checkpoints')).delete(7)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


def test_directories_that_the_job_made_read_only_go_too(left: Leftovers, tmp_path: Path) -> None:
    deep = tmp_path / "work/7/cache/model"
    deep.mkdir(parents=True)
    (deep / "weights").write_text("x")
    deep.chmod(0o500)
    deep.parent.chmod(0o500)
    assert delete_as_a_plain_user(tmp_path) == ""
    assert left.kept() == [70, 77]


def test_what_cannot_be_deleted_is_told_and_the_rest_is_deleted(left: Leftovers, tmp_path: Path) -> None:
    (tmp_path / "work").chmod(0o500)
    try:
        assert "PermissionError" in delete_as_a_plain_user(tmp_path)
    finally:
        (tmp_path / "work").chmod(0o700)
    assert [name for name in files(tmp_path) if name.startswith(("runs/7.", "checkpoints/7/"))] == []
    left.delete(7)
    assert left.kept() == [70, 77]


def test_directories_that_are_not_there_hold_nothing(tmp_path: Path) -> None:
    nothing = Leftovers(runs_dir=tmp_path / "runs", job_dirs=(tmp_path / "work",))
    nothing.delete(7)
    assert nothing.kept() == []


def test_never_changes_the_mode_of_what_a_link_points_to(tmp_path: Path) -> None:
    """Called directly: root may delete what is read-only, so nothing is opened up for it."""
    mine, theirs = tmp_path / "work" / "sub", tmp_path / "theirs"
    mine.mkdir(parents=True)
    theirs.mkdir()
    (tmp_path / "work" / "link").symlink_to(theirs)
    mine.chmod(0o500)
    theirs.chmod(0o500)
    _open_up(tmp_path / "work")
    assert (mine.stat().st_mode & 0o777, theirs.stat().st_mode & 0o777) == (0o700, 0o500)
