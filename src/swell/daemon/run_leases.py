"""Leases that runs renew themselves: those of pods, on whose nodes the daemon cannot renew them. `core.contact` decides
what their silence means, as for machines.

A lease is renewed only for a current attempt and while the database belongs to this daemon. Owned by the engine; the
API passes the requests of pods on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from swell.core.contact import is_current, lease_until_s, runs_on
from swell.core.errors import Busy
from swell.core.ids import RunId
from swell.core.state import State
from swell.daemon.contacts import Contacts
from swell.ports import Clock

ROUNDS = 20
"""Number of renewals within the length of a lease. The interval between two is at least MIN_S and at most MAX_S."""
MIN_S, MAX_S = 0.5, 5.0
LET_GO_S = 2 * MAX_S + 1.0
"""Maximum time that a stopping daemon waits for its runs to renew once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """The answer to a pod that renews its lease. `until_s`: when the lease ends, in the clock of that request (null:
    never). `epoch`: the store epoch of the daemon that answers. `every_s`: how long to wait before asking again."""

    until_s: float | None
    epoch: int
    every_s: float


def every_s(lease_s: float) -> float:
    return min(MAX_S, max(MIN_S, lease_s / ROUNDS))


async def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Leasing:
    """How leases are granted. `lease_s`: 0 if no machine has leases of this kind. `epoch`: of this daemon's store.
    `leased` is called with each run and node that asks, before the answer."""

    lease_s: float = 0.0
    epoch: int = 0
    still_ours: Callable[[], Awaitable[bool]] = _always
    leased: Callable[[RunId, str], None] = lambda *_: None


class RunLeases:
    def __init__(self, state: Callable[[], State], contacts: Contacts, clock: Clock, how: Leasing) -> None:
        self._state = state
        self._contacts = contacts
        self._clock = clock
        self._how = how
        self._waived = False
        self._asked_s: dict[tuple[RunId, str], float] = {}
        self._has_end: set[tuple[RunId, str]] = set()  # those whose latest lease of this daemon expires
        self._asked = asyncio.Event()

    async def renew(self, run: RunId, node: str, boot_s: float) -> LeaseView | None:
        """Renew the lease of a run on this node. None: the run is not a current attempt there and has to end."""
        if not self._holds(run, node):
            return None
        if not await self._how.still_ours():
            raise Busy("the daemon cannot prove now that the database is its own; ask again")
        if not self._holds(run, node):
            return None
        self._how.leased(run, node)
        self._note(run, node)
        if self._waived or not self._how.lease_s:
            return LeaseView(until_s=None, epoch=self._how.epoch, every_s=MAX_S)
        lease_s = max(self._how.lease_s, self._state().nodes[node].lease_s)  # shortened only once that is in the log
        await self._contacts.renewed(node, whole=self._all_have_an_end(node))
        return LeaseView(until_s=lease_until_s(boot_s, lease_s), epoch=self._how.epoch, every_s=every_s(lease_s))

    def _note(self, run: RunId, node: str) -> None:
        if (run, node) not in self._asked_s:
            self._asked_s = {asker: at_s for asker, at_s in self._asked_s.items() if self._holds(*asker)}
            self._has_end &= self._asked_s.keys()
        self._asked_s[run, node] = self._clock.monotonic_s()
        if self._waived or not self._how.lease_s:
            self._has_end.discard((run, node))
        else:
            self._has_end.add((run, node))
        self._asked.set()

    async def let_go(self) -> None:
        """The daemon stops as planned, and this is on disk: from now on every renewed lease never expires.

        Returns when all runs that asked recently have such a lease, or after `LET_GO_S`; runs that did not ask end when
        their leases expire."""
        self._waived = True
        now_s = self._clock.monotonic_s()
        live = {asker for asker, at_s in self._asked_s.items() if now_s - at_s < LET_GO_S and self._holds(*asker)}
        try:
            async with asyncio.timeout(LET_GO_S):
                while live & self._has_end:
                    self._asked.clear()
                    await self._asked.wait()
        except TimeoutError:
            return

    def _holds(self, run: RunId, node: str) -> bool:
        job = self._state().jobs.get(run.job)
        allocation = job.allocation if job is not None else None
        return is_current(self._state(), run) and allocation is not None and node in allocation.nodes

    def _all_have_an_end(self, node: str) -> bool:
        runs = [job.run.id for job in runs_on(self._state(), node) if job.run is not None]
        return all((run, node) in self._has_end for run in runs)
