"""First in, first out, not elastic.

By submission: give each job the size it asks for if so much is free, else pass it over. Leftovers idle.
O(jobs).
"""

from __future__ import annotations

from swell.core.decision import Decision
from swell.core.snapshot import Snapshot
from swell.policy.base import Memory, Purse, give_in_order
from swell.policy.options import NO_OPTIONS
from swell.ports import Random


class Fifo:
    name = "fifo"
    elastic = False
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        grants, explain = give_in_order(snapshot.jobs, Purse(snapshot.capacity), requested=True)
        return Decision(grants=grants, explain=explain, memory=memory)
