"""README's first two jobs, as they are typed there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import daemon, eventually
from integration.cli.conftest import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "work").mkdir()
    with daemon(tmp_path / "home", gpus=1):
        yield Shell(tmp_path / "home", tmp_path / "work")


def test_the_first_leaves_room_and_whoever_waits_for_it_is_told_why(shell: Shell) -> None:
    first = shell("run", "--gpus", "1-4", "-d", "--", "sleep", "100")
    assert "note: it keeps 1 GPU until it ends unless it calls the swell library" in first.out
    assert "checkpoint_dir" in first.out
    shell("run", "--gpus", "1", "--priority", "high", "-d", "--", "sleep", "100")
    eventually(lambda: "running" in shell("ls", "--json").out, 20)
    said = shell("explain", 2).out
    assert "job 1 (sleep) keeps 1 GPU until it ends: it neither uses the swell library" in said
    assert "ahead of it" not in said, "a job of lower priority is not ahead"
    assert shell("run", "--gpus", "0", "--", "echo", "light").out == "light\n"


def test_what_is_said_after_a_resume_is_of_now(shell: Shell) -> None:
    shell("run", "-d", "--", "sleep", "100")
    shell("run", "-d", "--", "sleep", "100")
    shell("pause", 2)
    eventually(lambda: "paused" in shell("explain", 2).out, 20)
    (resumed,) = json.loads(shell("resume", 2, "--json").out)
    assert "paused" not in resumed["why"]
    assert "paused" not in shell("explain", 2).out
