"""Shortest remaining job first, not elastic.

By remaining time at the requested size, shortest first: give each job the size it asks for if so much is free, else
pass it over. Leftovers idle. O(jobs log jobs). (SRPT: Schrage, A proof of the optimality of the shortest remaining
processing time discipline, Operations Research 1968.)
"""

from __future__ import annotations

from swell.core.decision import Decision
from swell.core.snapshot import Snapshot
from swell.policy.base import Memory, Purse, give_in_order, shortest_first
from swell.policy.options import NO_OPTIONS
from swell.ports import Random


class Srjf:
    name = "srjf"
    elastic = False
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        order = shortest_first(snapshot.jobs, snapshot.now_s)
        grants, explain = give_in_order(order, Purse(snapshot.capacity), requested=True)
        return Decision(grants=grants, explain=explain, memory=memory)
