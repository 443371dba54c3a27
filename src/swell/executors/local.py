"""The executor of the daemon's own machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from swell.checkpoints.carrying import Carrier
from swell.core.resources import Node
from swell.executors.hosts import HostExecutor
from swell.executors.inventory import InThread, Machine
from swell.executors.places import Place
from swell.executors.request import LaunchContext
from swell.executors.tracking import Tuning
from swell.executors.transport import LocalTransport
from swell.ports import Clock, Launch, Order


class LocalExecutor(HostExecutor):
    """Runs on this machine. `job_dirs`: each holds a directory per job, which is deleted when the job is removed."""

    def __init__(
        self,
        runs_dir: Path,
        clock: Clock,
        prepare: Callable[[Order], Launch],
        *,
        job_dirs: Sequence[Path] = (),
        machine: Machine | None = None,
        tuning: Tuning | None = None,
        places: Sequence[Place] = (),
        carrier: Carrier | None = None,
        context_of: Callable[[str], LaunchContext] | None = None,
    ) -> None:
        local = LocalTransport(runs_dir, job_dirs)
        seen = InThread(machine) if machine else None
        self._machine = machine
        self._here = Place(name="", transport=local, machine=seen, node=machine.name if machine else "")

        async def in_thread(order: Order) -> Launch:
            return await asyncio.to_thread(prepare, order)

        super().__init__(
            *(local, clock, in_thread),
            here=self._here,
            places=places,
            tuning=tuning,
            carrier=carrier,
            context_of=context_of,
        )

    async def declare(self, gpus: int | None) -> Node:
        """Declare this number of slots, or (None) the GPUs that are found. Returns the new inventory."""
        assert self._machine is not None, "slots are declared on machines that are looked at"
        self._machine.declare(gpus)
        await self._judge.take_inventory(self._here)
        assert self._here.seen is not None
        return self._here.seen
