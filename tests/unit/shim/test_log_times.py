"""Where a log begins at a time: a little early, never late, at the start of a line."""

from __future__ import annotations

import os
import time
from pathlib import Path

from swell.shim.log_times import NAME, LogTimes, begin_of


def written(directory: Path, *parts: tuple[float, bytes]) -> None:
    """Make a log to which each part was appended that many seconds ago."""
    times, now_s = LogTimes(str(directory), 1.0), time.time()
    data = b""
    for ago_s, part in parts:
        data += part
        times.note(now_s - ago_s, len(data))
    (directory / "log").write_bytes(data)
    os.utime(directory / "log", (now_s - parts[-1][0],) * 2)


def test_what_was_written_before_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, (100.0, b"old\n"), (50.0, b"later\n"), (10.0, b"new\n"))
    assert [begin_of(str(tmp_path), age_s) for age_s in (200.0, 75.0, 30.0)] == [0, 4, 10]


def test_a_log_that_did_not_grow_since_has_nothing_new(tmp_path: Path) -> None:
    written(tmp_path, (100.0, b"old\n"))
    assert begin_of(str(tmp_path), 30.0) == 4
    assert begin_of(str(tmp_path / "none"), 30.0) == 0


def test_a_line_that_was_begun_before_is_shown_whole(tmp_path: Path) -> None:
    written(tmp_path, (100.0, b"one\nepoch 3 "), (10.0, b"done\n"))
    assert begin_of(str(tmp_path), 30.0) == 4


def test_without_times_all_is_new(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\n")
    assert begin_of(str(tmp_path), 30.0) == 0


def test_a_clock_that_was_set_back_hides_nothing_new(tmp_path: Path) -> None:
    written(tmp_path, (-3600.0, b"one\n"), (100.0, b"two\n"), (10.0, b"three\n"))
    assert begin_of(str(tmp_path), 30.0) == 0


def test_a_pair_that_a_full_disk_cut_short_is_written_over(tmp_path: Path) -> None:
    written(tmp_path, (100.0, b"old\n"))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"half")
    LogTimes(str(tmp_path), 1.0).note(time.time() - 50.0, 4)
    assert (tmp_path / NAME).stat().st_size == 32


def test_and_until_then_it_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, (100.0, b"old\n"), (10.0, b"new\n"))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"half")
    assert begin_of(str(tmp_path), 30.0) == 4
