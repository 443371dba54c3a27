"""Files of working copies are listed and read; nothing outside of the job's own directory ever is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swell.shim import working_copies
from swell.shim.working_copies import WorkingCopies

ODD = ("a b\n c.txt", "-rf", "$(id)", "ünï.txt", "'\"\\", " ")


@pytest.fixture
def copies(tmp_path: Path) -> WorkingCopies:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "work" / "8").mkdir(parents=True)
    (tmp_path / "work" / "8" / "other").write_text("of another job")
    (tmp_path / "work" / "7" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "7" / "sub" / "file").write_text("0123456789")
    return WorkingCopies(str(tmp_path / "work"))


def paths(copies: WorkingCopies, below: str = "") -> list[str]:
    return [path for path, *_ in copies.tree(7, below)["files"]]


def test_files_are_listed_with_sizes_and_read_by_offset(copies: WorkingCopies, tmp_path: Path) -> None:
    found = (tmp_path / "work/7/sub/file").stat()
    assert copies.tree(7, "")["files"] == [["sub/file", 10, found.st_mtime_ns, found.st_mode & 0o777]]
    assert paths(copies, "sub") == ["file"]
    assert copies.read(7, "", "sub/file", 4, 3) == (b"456", 10, found.st_ino)
    assert copies.read(7, "sub", "file", 10, 3)[0] == b""
    assert [copies.read(7, "sub", "file", 4, limit)[0] for limit in (0, -1)] == [b"", b""]


def test_a_list_is_in_the_order_of_names_however_they_were_made(copies: WorkingCopies, tmp_path: Path) -> None:
    """Two lists that were cut off at the same length are of the same files."""
    for number in sorted(range(40), key=lambda number: number * 17 % 41):
        folder = tmp_path / "work/7/many" / f"{number:02}"
        folder.mkdir(parents=True)
        for name in ("c", "a", "b"):
            (folder / name).touch()
    assert paths(copies, "many") == [f"{number:02}/{name}" for number in range(40) for name in "abc"]


@pytest.mark.parametrize(
    "path", ["..", "../8/other", "sub/../../8/other", "/etc/passwd", "", ".", "sub", "nul\0", "\udcff", "/"]
)
def test_paths_that_lead_elsewhere_or_name_no_file_are_refused(copies: WorkingCopies, path: str) -> None:
    with pytest.raises(OSError):
        copies.read(7, "", path, 0, 100)


@pytest.mark.parametrize("below", ["..", "../8", "/", "link"])
def test_a_working_directory_that_leads_elsewhere_is_refused(copies: WorkingCopies, tmp_path: Path, below: str) -> None:
    (tmp_path / "work/7/link").symlink_to(tmp_path / "work/8")
    with pytest.raises(OSError):
        copies.tree(7, below)
    with pytest.raises(OSError):
        copies.read(7, below, "other", 0, 100)


def test_links_are_neither_listed_nor_followed_at_any_part_of_a_path(copies: WorkingCopies, tmp_path: Path) -> None:
    own = tmp_path / "work/7"
    (own / "file-link").symlink_to(tmp_path / "secret")
    (own / "folder-link").symlink_to(tmp_path / "work/8")
    (own / "inside").symlink_to(own / "sub")
    assert paths(copies) == ["sub/file"]
    for path in ("file-link", "folder-link/other", "inside/file"):
        with pytest.raises(OSError):
            copies.read(7, "", path, 0, 100)


def test_a_job_directory_that_is_a_link_is_refused(copies: WorkingCopies, tmp_path: Path) -> None:
    (tmp_path / "work/9").symlink_to(tmp_path / "work/8")
    with pytest.raises(OSError):
        copies.tree(9, "")


def test_a_pipe_is_neither_listed_nor_waited_for(copies: WorkingCopies, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "work/7/pipe")
    assert paths(copies) == ["sub/file"]
    with pytest.raises(OSError, match="not a plain file"):
        copies.read(7, "", "pipe", 0, 100)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_listed_and_read_as_they_are(copies: WorkingCopies, tmp_path: Path, name: str) -> None:
    (tmp_path / "work/7" / name).write_text("odd")
    assert name in paths(copies)
    assert copies.read(7, "", name, 0, 100)[0] == b"odd"


def test_names_that_are_no_text_are_counted_instead(copies: WorkingCopies, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/work/7/\xff")).write_text("x")
    found = copies.tree(7, "")
    assert (len(found["files"]), found["skipped"], found["whole"]) == (1, 1, True)


def test_pieces_and_lists_are_bounded_and_say_so(
    copies: WorkingCopies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_copies, "MAX_PIECE", 4)
    monkeypatch.setattr(working_copies, "MAX_FILES", 1)
    (tmp_path / "work/7/zzz").write_text("x")
    assert copies.read(7, "", "sub/file", 0, 100)[0] == b"0123"
    found = copies.tree(7, "")
    assert (len(found["files"]), found["whole"]) == (1, False)


def test_names_of_a_list_are_bounded_by_their_length_together(
    copies: WorkingCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = sum(len(path) for path, *_ in copies.tree(7, "")["files"])
    monkeypatch.setattr(working_copies, "MAX_NAMES_BYTES", length)
    assert copies.tree(7, "")["whole"]
    monkeypatch.setattr(working_copies, "MAX_NAMES_BYTES", length - 1)
    assert not copies.tree(7, "")["whole"]
