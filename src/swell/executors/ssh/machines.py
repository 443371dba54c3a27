"""Checks machines over SSH that a person adds, and cleans those that a person removes; see `ports.Machines`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from swell.core.resources import Node
from swell.executors.ssh.checks import check_machine
from swell.executors.ssh.cleaning import clean_machine
from swell.ports import Answer, Check


class SshMachines:
    """One per daemon. Keeps no connection: `hosts` does."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id

    def check(self, declared: Node) -> AsyncIterator[Check | Node]:
        return check_machine(declared)

    async def clean(self, node: Node) -> Answer:
        assert node.ssh is not None
        return await clean_machine(node.ssh, self._cluster_id)
