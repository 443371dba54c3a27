"""First in, first out, elastic.

By submission, each job gets its minimum if that is free; then jobs that got it are swept in the same order, one size up
at a time, until no GPU is free or nobody gains. O(jobs + GPUs).
"""

from __future__ import annotations

from swell.core.decision import Decision
from swell.core.snapshot import Snapshot
from swell.policy.base import Memory, Purse, give_in_order, grow_in_turn
from swell.policy.options import NO_OPTIONS
from swell.ports import Random


class ElasticFifo:
    name = "elastic-fifo"
    elastic = True
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        purse = Purse(snapshot.capacity)
        grants, explain = give_in_order(snapshot.jobs, purse, requested=False)
        grow_in_turn(snapshot.jobs, grants, purse)
        return Decision(grants=grants, explain=explain, memory=memory)
