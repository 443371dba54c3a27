"""The executor of machines over SSH: follows declarations as people add and remove machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from swell.checkpoints.carrying import Carrier
from swell.core.resources import Node, Ssh
from swell.executors.hosts import HostExecutor
from swell.executors.places import Place
from swell.executors.request import LaunchContext
from swell.executors.ssh.inventory import FarMachine
from swell.executors.ssh.link import Greeting, Streams
from swell.executors.ssh.preparation import SshPreparation, context_in
from swell.executors.ssh.transport import SshTransport, over_ssh
from swell.executors.tracking import Tuning
from swell.executors.transport import LocalTransport, Unreachable
from swell.ports import Clock, Launch, Order

TUNING = Tuning(inventory_s=10.0)


class SshExecutor(HostExecutor):
    """`kept_dir`: the rosters of runs on the daemon's side. `epoch`: of the daemon's store. `upstream`: opens
    connections to the daemon's own API, for reports of trainings through their agents."""

    def __init__(
        self,
        kept_dir: Path,
        clock: Clock,
        preparation: SshPreparation,
        *,
        epoch: int,
        upstream: Callable[[], Awaitable[Streams]],
        still_ours: Callable[[], Awaitable[bool]],
        tuning: Tuning = TUNING,
        carrier: Carrier | None = None,
    ) -> None:
        self._transports: dict[str, SshTransport] = {}
        self._declared: dict[str, tuple[Ssh, float]] = {}
        self._preparation = preparation
        self._epoch = epoch
        self._upstream = upstream
        kept = LocalTransport(kept_dir)
        super().__init__(
            *(kept, clock, self._prepared),
            here=None,
            tuning=tuning,
            still_ours=still_ours,
            carrier=carrier,
            context_of=self._context_of,
        )

    def know(self, nodes: Mapping[str, Node]) -> None:
        """Join and leave machines. Called with all nodes whenever they change."""
        found = {n.name: (n.ssh, n.lease_s) for n in nodes.values() if n.executor == "ssh" and n.ssh is not None}
        for name in [name for name in self._declared if found.get(name) != self._declared[name]]:
            self.leave(name)
            del self._declared[name], self._transports[name]
        for name, (ssh, lease_s) in found.items():
            if name not in self._declared:
                self._declared[name] = ssh, lease_s
                self.join(self._new_place(name, ssh, lease_s))

    def _new_place(self, name: str, ssh: Ssh, lease_s: float) -> Place:
        greeting = Greeting(root=ssh.root, cluster_id=self._preparation.cluster_id, epoch=self._epoch)
        transport = self._transports[name] = SshTransport(greeting, over_ssh(ssh), self._upstream)
        machine = FarMachine(name, transport, self._clock, self._preparation.containers.runtime)
        return Place(name=name, transport=transport, machine=machine, lease_s=lease_s)

    def _context_of(self, node: str) -> LaunchContext:
        if node not in self._transports:
            raise Unreachable(f"there is no machine called {node} any more")
        return context_in(self._transports[node].cluster)

    async def _prepared(self, order: Order) -> Launch:
        missing = [name for name in order.nodes if name not in self._transports]
        if missing:
            raise Unreachable(f"there is no machine called {missing[0]} any more")
        return await self._preparation(order, self._transports)


def upstream_to(host: str, port: int) -> Callable[[], Awaitable[Streams]]:
    """Connections to the daemon's own API."""

    async def connected() -> Streams:
        return await asyncio.open_connection(host, port)

    return connected
