"""At which line of a file a mistake is, or a field was written."""

from __future__ import annotations

import pytest

from swell.jobfile.lines import located, written_at
from swell.jobfile.problems import one

FILE = """# what runs
command: python train.py
gpus:
  min: 1
  max: 4
"""
JOBS = """- command: one

- command: two
  gpus:
    min: 8
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [("command", 2), ("gpus", 3), ("gpus.max", 5), ("gpus.types", 3), ("priority", 0), ("priority.x", 0)],
)
def test_a_field_is_written_where_the_deepest_part_of_its_path_is(path: str, line: int) -> None:
    assert written_at(path, FILE) == line


@pytest.mark.parametrize("text", ["", "# nothing\n", "gpus: [1"])
def test_in_a_file_without_fields_nothing_is_written(text: str) -> None:
    assert written_at("gpus", text) == 0


@pytest.mark.parametrize(
    ("path", "line"), [("jobs[0].command", 1), ("jobs[1].gpus.min", 5), ("jobs[1].priority", 3), ("jobs[9].gpus", 4)]
)
def test_a_mistake_in_one_of_several_jobs_is_at_its_own_line(path: str, line: int) -> None:
    """Also in one that a later version of the file does not have any more: there, in its last one."""
    [(_, found)] = located(one(path, "is wrong"), JOBS)
    assert found == line


def test_what_is_missing_at_the_end_is_where_the_text_ends() -> None:
    [(_, line)] = located(one("", "ended too early at line 40", syntax=True), FILE)
    assert line == 5
