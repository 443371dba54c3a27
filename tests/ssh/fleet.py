"""A daemon with machines over SSH, for the tests of runs there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness import Daemon, eventually
from ssh.machines import Machine
from ssh.shell import Shell

ENDED = ("completed", "failed", "cancelled", "lost")


def add(sh: Shell, machine: Machine, *options: object, gpus: int | None = 2, lease: str = "10m") -> None:
    slots = () if gpus is None else ("--gpus", gpus)
    where = ("--key", machine.key, "--name", machine.name, "--lease", lease)
    sh("node", "add", f"ada@{machine.address}", *where, *slots, *options)


def node(served: Daemon, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(each for each in served.get("/v1/nodes")["nodes"] if each["name"] == name)
    return found


def contact(served: Daemon, name: str) -> str:
    return str(node(served, name)["contact"])


def until_contact(served: Daemon, name: str, wanted: str, timeout_s: float = 60.0) -> None:
    eventually(lambda: contact(served, name) == wanted, timeout_s, what=f"{name} is {wanted}")


def job(served: Daemon, number: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = served.get(f"/v1/jobs/{number}")
    return found


def until(served: Daemon, number: int, *states: str, timeout_s: float = 60.0) -> Mapping[str, Any]:
    eventually(lambda: job(served, number)["state"] in states, timeout_s, what=f"job {number} is {' or '.join(states)}")
    return job(served, number)


def runs(served: Daemon, number: int) -> list[str]:
    """How each attempt ended."""
    return [str(run["exit_reason"]) for run in served.get(f"/v1/jobs/{number}/runs")["runs"]]
