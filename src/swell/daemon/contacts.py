"""Which machines answer: notes when each was last heard, and records changes by the rules of `core.contact`.

Only machines that report a boot id can be away or lost. Owned by the engine. The times are in memory only: after a
restart every time-out starts again, so it may be late, but never early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from swell.core import contact as rules
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.observations import NodeHeard
from swell.core.resources import Contact, Node
from swell.core.state import State
from swell.ports import Clock

EVERY_S = 5.0
"""Maximum time between two checks for silent machines; a time-out that is due causes one as well."""


@dataclass(slots=True)
class _Heard:
    """When a machine was last heard, and when its leases were last renewed; monotonic times."""

    last_s: float
    renewed_s: float


class Contacts:
    def __init__(
        self,
        state: Callable[[], State],
        commit: Callable[[Sequence[Event]], Awaitable[None]],
        kill: Callable[[RunId], None],
        reached: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`kill`: called for a run that is not the current attempt. `reached`: called when a machine answers again."""
        self._state = state
        self._commit = commit
        self._kill = kill
        self._reached = reached
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._heard: dict[str, _Heard] = {}

    async def heard(self, seen: NodeHeard) -> None:
        """A machine has answered. Kills its runs that are not current attempts before anything new starts there."""
        now_s = self._clock.monotonic_s()
        known = self._heard_of(seen.node)
        known.last_s = now_s
        known.renewed_s = now_s if seen.renewed else known.renewed_s
        state = self._state()
        node = state.nodes.get(seen.node)
        if node is None:
            return
        events = rules.heard(state, node, seen.boot_id, seen.running, self._clock.now_s())
        again = rules.leased_again(node, self._clock.now_s()) if seen.renewed and seen.leased else []
        await self._commit([*events, *again])
        for run in rules.stale_runs(self._state(), seen.running):
            self._kill(run)
        if node.contact is not Contact.HERE:
            self._reached(seen.node)

    async def renewed(self, name: str, *, whole: bool) -> None:
        """The daemon renewed the lease of a run on this node, which alone is no contact with it. `whole`: it renewed
        every run there, so that all their leases expire."""
        self._heard_of(name).renewed_s = self._clock.monotonic_s()
        node = self._state().nodes.get(name)
        if whole and node is not None:
            await self._commit(rules.leased_again(node, self._clock.now_s()))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(max(0.01, min(EVERY_S, await self.look())))

    async def look(self) -> float:
        """Commits which machines are away or lost by now. Returns the seconds until the next one can be."""
        now_s, wait_s = self._clock.monotonic_s(), EVERY_S
        for node in list(self._state().nodes.values()):
            due_s = self._due_s(node)
            if due_s is None:
                continue
            if now_s < due_s:
                wait_s = min(wait_s, due_s - now_s)
            else:
                await self._commit(self._silent(node))
        return wait_s

    def _due_s(self, node: Node) -> float | None:
        """When its contact changes if it stays silent."""
        if not node.boot_id or node.contact is Contact.LOST:
            return None
        heard = self._heard_of(node.name)
        if node.contact is not Contact.AWAY:
            return heard.last_s + rules.AWAY_AFTER_S
        return self.over_by_s(node)

    def over_by_s(self, node: Node) -> float | None:
        """Monotonic time at which the leases of all its runs have expired, so that they have ended; None: they have no
        leases that expire."""
        if not node.lease_s or node.lease_waived:
            return None
        return rules.over_by_s(
            self._heard_of(node.name).renewed_s, node.lease_s, rules.grace_on(self._state(), node.name)
        )

    def _silent(self, node: Node) -> list[Event]:
        now_s = self._clock.now_s()
        if node.contact is not Contact.AWAY:
            return rules.away(node, now_s)
        return rules.lost(self._state(), node.name, now_s, "it did not answer, and the leases of its runs are over")

    def _heard_of(self, node: str) -> _Heard:
        return self._heard.setdefault(node, _Heard(last_s=self._began_s, renewed_s=self._began_s))
