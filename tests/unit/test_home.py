"""What is private stays so, and is whole or not there; what is not safe is refused by name with what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from swell import home
from swell.home import HomeRefused

GOOD = "k" * home.MIN_TOKEN


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_first_token_is_long_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = home.token_of(path)
    assert len(token) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert home.token_of(path) == token
    assert home.token_of(tmp_path / "other") != token
    assert sorted(os.listdir(tmp_path)) == ["other", "token"]


def test_tokens_that_earlier_versions_made_are_good(tmp_path: Path) -> None:
    assert home.read_token(written(tmp_path / "token", "Zq3-_" * 8 + "abc\n")) == "Zq3-_" * 8 + "abc"


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("", 0o600, "is empty"),
        ("\n \n", 0o600, "is empty"),
        ("k" * 31, 0o600, "31 characters"),
        ("\0" * 43, 0o600, "printable ASCII"),
        (f"{GOOD} {GOOD}", 0o600, "printable ASCII"),
        ("é" * 40, 0o600, "printable ASCII"),
        (GOOD, 0o640, "chmod 600"),
        (GOOD, 0o604, "chmod 600"),
        (GOOD, 0o620, "chmod 600"),
    ],
)
def test_a_token_that_somebody_could_know_is_refused(tmp_path: Path, text: str, mode: int, says: str) -> None:
    path = written(tmp_path / "token", text, mode)
    with pytest.raises(HomeRefused, match=says) as refused:
        home.token_of(path)
    assert str(path) in str(refused.value)
    assert path.read_text() == text


def test_a_link_for_a_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.symlink_to(written(tmp_path / "elsewhere", GOOD))
    with pytest.raises(HomeRefused, match=r"link to .*elsewhere"):
        home.token_of(path)
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(HomeRefused, match=r"link to .*nowhere"):
        home.token_of(path)
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_or_a_directory_for_a_token_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        with pytest.raises((HomeRefused, IsADirectoryError), match=name):
            home.token_of(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "token", GOOD)
    os.chown(path, 12345, -1)
    with pytest.raises(HomeRefused, match="belongs to user 12345"):
        home.token_of(path)
    theirs = tmp_path / "home"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, -1)
    with pytest.raises(HomeRefused, match="belongs to user 12345"):
        home.make_directory(theirs)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_home_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(HomeRefused, match=r"chmod go-w"):
        home.make_directory(tmp_path)


def test_a_home_is_made_private(tmp_path: Path) -> None:
    home.make_directory(tmp_path / "a" / "home")
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", home.STATE_NAMES)
def test_links_for_state_files_are_refused(tmp_path: Path, name: str) -> None:
    victim = written(tmp_path / "victim", "mine")
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(HomeRefused, match=f"{name} is a link to .*victim"):
        home.check_state_files(tmp_path)
    if name != home.DATABASE_NAME:
        with pytest.raises(HomeRefused, match="is a link"):
            home.open_private(tmp_path / name)
    assert victim.read_text() == "mine"


Fails = Callable[..., object]


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
@pytest.mark.parametrize("before", ["", "what was there"])
def test_what_could_not_be_written_whole_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: str
) -> None:
    path = tmp_path / "token"
    if before:
        path.write_text(before)

    def full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"os.{step}", full)
    with pytest.raises(OSError, match="No space"):
        home.write_private(path, "new")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == (["token"] if before else [])
    assert not before or path.read_text() == before
    home.write_private(path, "new")
    assert path.read_text() == "new"


def test_what_a_killed_start_left_is_written_over(tmp_path: Path) -> None:
    victim = written(tmp_path / "victim", "mine")
    (tmp_path / ".token.new").symlink_to(victim)
    home.write_private(tmp_path / "token", "new")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "token").is_symlink()
