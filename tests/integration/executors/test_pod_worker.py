"""Process 1 of a pod, run here as the pod runs it: what it starts, and its last word."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swell.shim.files import boot_s
from unit.shim.test_renewal import daemon

NOT_STARTED = 127
POD = """
import sys
from swell.shim import pod
pod.TERMINATION_LOG, pod.REACH_S = sys.argv[1], 1.0
sys.exit(pod.main(sys.argv[2:]))
"""


def pod(folder: Path, *argv: str, **env: str) -> tuple[dict[str, Any], str]:
    """Its termination message, and what it printed."""
    own = {"SWELL_POD_CWD": str(folder), "SWELL_POD_UP": str(folder / "up"), **env}
    word = folder / "last-word"
    command = [sys.executable, "-c", POD, str(word), *argv]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=60, check=False)
    record: dict[str, Any] = json.loads(word.read_text(encoding="utf-8"))
    by_signal = 128 + record["signal"] if record["signal"] else NOT_STARTED
    assert done.returncode == (record["code"] if record["code"] is not None else by_signal), "as a shell would say it"
    return record, done.stdout


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_first_rank_hands_on_the_epochs_that_the_training_noted(tmp_path: Path, rank: str) -> None:
    now_s = boot_s()
    (tmp_path / "journal").write_text(f"4 10 {now_s - 50.0}\n6 10 {now_s - 5.0}\n", encoding="ascii")
    record, printed = pod(
        *(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3"),
        SWELL_JOURNAL=str(tmp_path / "journal"),
        SWELL_RANK=rank,
    )
    assert (record["code"], record["signal"], record["asked"], record["failed"]) == (3, None, "", {})
    assert printed == "out\nerr\n", "in the order in which it was written"
    if rank == "0":
        assert {name: record["epochs"][name] for name in ("resumed", "done", "total")} == {
            "resumed": 4,
            "done": 6,
            "total": 10,
        }
        assert record["epochs"]["at_ago"] >= 5.0
    else:
        assert record["epochs"] is None


def test_a_worker_that_a_signal_ended_says_which(tmp_path: Path) -> None:
    record, _ = pod(tmp_path, "sh", "-c", "kill -USR1 $$")
    assert (record["code"], record["signal"], record["failed"]) == (None, signal.SIGUSR1, {})


@pytest.mark.parametrize(("status", "step"), [(410, "stopped"), (500, "reach")])
def test_never_a_worker_without_a_lease(tmp_path: Path, status: int, step: str) -> None:
    with daemon(status=status) as (url, answers):
        leased = {"SWELL_POD_NODE": "n1", "SWELL_POD_GRACE_S": "5", "SWELL_URL": url, "SWELL_RUN": "7.1"}
        record, _ = pod(tmp_path, "touch", str(tmp_path / "began"), SWELL_TOKEN="t", **leased)
    assert answers.asked
    assert record["failed"]["step"] == step
    assert not (tmp_path / "began").exists()


def test_a_lease_is_asked_for_again_as_long_as_the_worker_runs(tmp_path: Path) -> None:
    with daemon(until_s=boot_s() + 50.0) as (url, answers):
        leased = {"SWELL_POD_NODE": "n1", "SWELL_POD_GRACE_S": "5", "SWELL_URL": url, "SWELL_RUN": "7.1"}
        record, _ = pod(tmp_path, "sleep", "1", SWELL_TOKEN="t", **leased)
    assert (record["code"], record["failed"]) == (0, {})
    assert len(answers.asked) > 2
