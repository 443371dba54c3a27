"""The last line of a log: no part of a secret is in it, wherever the window that is read begins or the log ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.shim.files import cause_in

SECRET = "hunter2-correct-horse"


@pytest.mark.parametrize("behind", range(len(SECRET) + 2))
def test_never_a_part_of_a_secret_that_the_windows_edge_cuts(tmp_path: Path, behind: int) -> None:
    """So many characters of the secret are inside of the window."""
    window = 64
    tail = "x" * (window - behind)
    (tmp_path / "log").write_text("before " * 50 + SECRET + tail)
    found = cause_in(str(tmp_path / "log"), [SECRET], window)
    for length in range(4, len(SECRET) + 1):
        assert SECRET[-length:] not in found
    assert found.endswith(tail.strip() or "***")


def test_whole_values_long_ones_first_and_over_several_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"a {SECRET} b key-1\nkey-2 c\n\n")
    assert cause_in(str(tmp_path / "log"), [SECRET, "hunter2", "key-1\nkey-2", ""]) == "a *** b *** c"


@pytest.mark.parametrize("printed", [4, 10, len(SECRET) - 1])
def test_a_beginning_at_the_end_of_the_log_is_hidden(tmp_path: Path, printed: int) -> None:
    (tmp_path / "log").write_text(f"token={SECRET[:printed]}\n")
    assert cause_in(str(tmp_path / "log"), [SECRET]) == "token=***"


def test_without_secrets_it_is_the_last_line_and_without_a_log_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo \n\n")
    assert cause_in(str(tmp_path / "log"), []) == "two"
    assert cause_in(str(tmp_path / "missing"), [SECRET]) == ""
