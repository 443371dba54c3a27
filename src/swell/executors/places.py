"""The machines of an executor and the runs on them: shared by `hosts`, `judging` and `carriage`. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from swell.core.idle import GpuUse
from swell.core.ids import RunId
from swell.core.observations import Observation
from swell.core.resources import Node
from swell.executors.inventory import Ours
from swell.executors.tracking import Tracked, Tuning
from swell.executors.transport import Transport, Unreachable
from swell.executors.verdict import OVER, Roster
from swell.ports import Clock

_T = TypeVar("_T")


class Inspected(Protocol):
    """Reads the inventory of a machine."""

    async def read(self, ours: Ours) -> Node: ...

    def use(self) -> dict[int, GpuUse]:
        """The use of each GPU that can be measured, as of the last `read`."""
        ...

    async def clean(self, gpus: Sequence[int], ours: Ours) -> bool:
        """Whether these GPUs may be allocated to the next run."""
        ...


@dataclass(slots=True)
class Place:
    """A machine. A task of its own watches it, so that a machine that does not answer delays no other."""

    name: str  # empty: this machine
    transport: Transport
    machine: Inspected | None = None  # None: its inventory is not read
    node: str = ""  # the name it is reported under, if different
    lease_s: float = 0.0  # 0: it has no leases and is not watched for contact
    boot_id: str = ""  # from its last answer
    running: dict[RunId, tuple[int, ...]] = field(default_factory=dict)  # from its last answer
    seen: Node | None = None  # its inventory, as last reported
    dirty: dict[RunId, None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    watch: asyncio.Task[None] | None = None


class Floor:
    """`here`: the machine of every node without a place of its own; None: there is no such machine."""

    def __init__(self, clock: Clock, tuning: Tuning, here: Place | None) -> None:
        self.clock = clock
        self.tuning = tuning
        self.here = here
        self.others: dict[str, Place] = {}
        self.tracked: dict[RunId, Tracked] = {}
        self._told: asyncio.Queue[Observation] = asyncio.Queue()

    def tell(self, seen: Observation) -> None:
        self._told.put_nowait(seen)

    async def told(self) -> Observation:
        return await self._told.get()

    def places(self) -> list[Place]:
        return [*([self.here] if self.here else []), *self.others.values()]

    def place(self, node: str) -> Place:
        found = self.others.get(node, self.here)
        if found is None:
            raise Unreachable(f"there is no machine called {node} any more")
        return found

    def by_place(self, roster: Roster) -> list[tuple[Place, list[int]]]:
        groups: dict[str, tuple[Place, list[int]]] = {}
        for member in roster.members:
            place = self.place(member.node)
            groups.setdefault(place.name, (place, []))[1].append(member.rank)
        return list(groups.values())

    def hint(self, run: RunId) -> None:
        """Something may have happened to the run: look at its machines now."""
        tracked = self.tracked.get(run)
        for node in {member.node for member in tracked.roster.members} if tracked else ():
            if (place := self.others.get(node, self.here)) is not None:
                place.dirty[run] = None
                place.wake.set()

    async def reach(self, call: Awaitable[_T]) -> _T:
        """Every call to a machine ends within the time-out."""
        try:
            async with asyncio.timeout(self.tuning.answer_s):
                return await call
        except TimeoutError:
            raise Unreachable(f"no answer within {self.tuning.answer_s:g} s") from None

    # ---- what belongs to Swell on a machine ----

    def ours(self, place: Place) -> Ours:
        sights = [tracked.sights[place.name] for tracked in self.tracked.values() if place.name in tracked.sights]
        live = [worker for sight in sights for worker in sight.workers if worker.stage not in OVER]
        held = [gpu for tracked in self.tracked.values() for gpu in self.gpus_of(tracked.roster, place)]
        return Ours(
            marks=frozenset(worker.mark for worker in live if worker.mark),
            shims=frozenset(worker.pid for worker in live if worker.pid),
            gpus=frozenset(held),
        )

    def gpus_of(self, roster: Roster, place: Place) -> list[int]:
        name = place.node or place.name
        return sorted({gpu for member in roster.members if member.node == name for gpu in member.gpus})


async def all_of(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """Run all concurrently to their end. Returns their results, or raises an error, a refusal before Unreachable."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [error for error in found if isinstance(error, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, Unreachable))
    return [item for item in found if not isinstance(item, BaseException)]
