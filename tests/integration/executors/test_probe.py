"""What a machine over SSH is asked when it is added: the probe itself, run here as it is run there."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from swell.executors.ssh import probe

SOURCE = (files("swell.executors.ssh") / "probe.py").read_text(encoding="utf-8")


def told(*arguments: str) -> list[dict[str, Any]]:
    """Its facts. Ends with its output: whoever keeps that open keeps a login from ending."""
    limit_s = probe.SURVIVE_S / 2
    command = [sys.executable, "-", *arguments]
    done = subprocess.run(command, input=SOURCE, capture_output=True, text=True, timeout=limit_s, check=True)
    assert done.stderr == ""
    return [json.loads(line.removeprefix(probe.MARK)) for line in done.stdout.splitlines()]


def test_the_probe_reports_each_fact_and_keeps_no_login_open(tmp_path: Path) -> None:
    facts = {fact.pop("fact"): fact for fact in told(str(tmp_path / "not-there-yet"))}
    assert list(facts) == ["clock", "python", "address", "size", "disk", "left", "gpus"]
    assert facts["size"]["cpus"] >= 1
    assert facts["disk"]["path"] == str(tmp_path / "not-there-yet")
    assert facts["disk"]["free_mib"] > 0
    assert facts["disk"]["trouble"] == ""
    assert {"/var/tmp"} <= {place["path"] for place in facts["disk"]["elsewhere"]}
    left = facts["left"]
    assert left["start"]
    again = told("survived", str(left["pid"]), left["start"])
    assert again == [{"fact": "survived", "alive": True}]
    assert probe.start_of(left["pid"]) != left["start"], "the process that was left behind is still there"


def test_the_file_system_of_a_path_is_that_of_the_deepest_mount_above_it() -> None:
    assert probe.mount_of("/proc/self/nothing-there") == ("proc", "/proc")
    kind, point = probe.mount_of("/not-there-yet")
    assert kind
    assert point == "/"
