"""`--machines M…` of a batch: its jobs run on these only. Those that the daemon does not have yet are added, as
`swell node add` adds them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swell.cli.common import answering, client_or_start, start_daemon
from swell.cli.machine_target import machine
from swell.cli.node_add import add_machine
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.core.errors import SwellError

ANSWER_S = 15.0


class NoMachine(SwellError):
    """None of the machines that were named can be used."""


def connect(home: Path | None, machines: Sequence[str]) -> tuple[Client, tuple[str, ...]]:
    """The daemon, and the names of the nodes that the jobs may use; none: any. A daemon that is started for machines
    elsewhere gets no slots on this one."""
    if not machines:
        return client_or_start(home), ()
    found = answering(home) or start_daemon(home, ())
    return found, _usable(found, machines)


def _usable(client: Client, targets: Sequence[str]) -> tuple[str, ...]:
    """The nodes that these machines are; one that the daemon does not have is added, or set aside with a warning."""
    nodes = client.get("/v1/nodes")["nodes"]
    known, added = [], []
    for target in targets:
        if found := [node["name"] for node in nodes if _is(node, target)]:
            known += found
        elif add_machine(client, machine(target)):
            added.append(machine(target)["name"])
        else:
            say(safe(f"WARNING: {target} is set aside; its jobs go elsewhere"), err=True)
    client.close()  # the checks took long enough for the daemon to have closed it
    if not known and not added:
        raise NoMachine("none of the machines can be used; the checks above say why. Nothing was submitted")
    _wait_for(client, added)
    return (*known, *added)


def _wait_for(client: Client, names: Sequence[str]) -> None:
    """Until the daemon has reached them, so that what they can run is known; jobs would wait for them otherwise."""
    until_s = time.monotonic() + ANSWER_S
    while time.monotonic() < until_s:
        nodes = client.get("/v1/nodes")["nodes"]
        if all(node["boot_id"] for node in nodes if node["name"] in names):  # known once it has answered
            return
        time.sleep(0.1)


def _is(node: dict[str, Any], target: str) -> bool:
    """The node has this name, or is reached at this host and port."""
    if node["name"] == target:
        return True
    said, ssh = machine(target), node["ssh"]
    return ssh is not None and all(str(ssh[key]) == str(said[key]) for key in ("host", "user", "port") if key in said)
