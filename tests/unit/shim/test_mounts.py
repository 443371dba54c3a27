"""What of a job's own is mounted into its container."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from swell.shim.containers import Failed, checked


@pytest.mark.parametrize(
    ("make", "is_kind", "mode"), [("directory", stat.S_ISDIR, 0o700), ("file", stat.S_ISREG, 0o600)]
)
def test_what_is_swells_own_is_made_for_nobody_else_and_kept_at_the_next_attempt(
    tmp_path: Path, make: str, is_kind: object, mode: int
) -> None:
    source = tmp_path / "own"
    mount = {"source": str(source), "target": "/own", "make": make}
    for _ in range(2):
        assert checked(mount, []) == mount
        assert callable(is_kind)
        assert is_kind(source.stat().st_mode)
        assert stat.S_IMODE(source.stat().st_mode) == mode


def test_what_has_to_be_there_already_is_not_made(tmp_path: Path) -> None:
    mount = {"source": str(tmp_path / "library"), "target": "/library", "make": ""}
    assert checked(mount, []) == mount
    assert not (tmp_path / "library").exists()


def test_files_and_directories_are_mounted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data.csv").write_text("1,2")
    os.mkfifo(tmp_path / "pipe")
    for name in ("data", "data.csv"):
        mount = {"source": str(tmp_path / name), "target": "/data"}
        assert checked(mount, [str(tmp_path)]) == mount
    with pytest.raises(Failed, match="pipe is a device, pipe or socket"):
        checked({"source": str(tmp_path / "pipe"), "target": "/data"}, [str(tmp_path)])
