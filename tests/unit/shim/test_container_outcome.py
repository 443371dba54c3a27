"""The exit record of a worker whose program ran in a container."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from swell.shim.containers import outcome

RECORD: dict[str, Any] = {"code": 1, "signal": None, "oom": False, "asked": "", "failed": {}}


def of(directory: Path, **found: object) -> dict[str, Any]:
    (directory / "container.json").write_text(json.dumps({"lost": False, "oom": False, "lost_gpus": "", **found}))
    return outcome(str(directory), RECORD)


@pytest.mark.parametrize(
    ("code", "exit_code", "by_signal"),
    [
        (0, 0, None),
        (128, 128, None),
        (129, None, 1),
        (137, None, 9),
        (128 + signal.NSIG - 1, None, signal.NSIG - 1),
        (128 + signal.NSIG, 128 + signal.NSIG, None),
    ],
)
def test_codes_above_128_are_signals_as_far_as_there_are_any(
    tmp_path: Path, code: int, exit_code: int | None, by_signal: int | None
) -> None:
    record = of(tmp_path, code=code)
    assert (record["code"], record["signal"], record["oom"]) == (exit_code, by_signal, False)


def test_only_a_kill_can_be_for_want_of_memory(tmp_path: Path) -> None:
    assert of(tmp_path, code=137, oom=True)["oom"]
    assert not of(tmp_path, code=1, oom=True)["oom"]


def test_an_end_that_nothing_recorded_is_no_failure_of_the_job(tmp_path: Path) -> None:
    record = outcome(str(tmp_path), RECORD)
    assert (record["code"], record["failed"]["step"]) == (None, "lost")


def test_lost_gpus_are_the_cause_whatever_the_code(tmp_path: Path) -> None:
    record = of(tmp_path, code=1, lost_gpus="no devices were found")
    assert (record["code"], record["failed"]["step"]) == (None, "gpus")


def test_a_run_that_was_asked_to_stop_keeps_its_record(tmp_path: Path) -> None:
    asked = {**RECORD, "asked": "term"}
    assert outcome(str(tmp_path), asked) == asked
