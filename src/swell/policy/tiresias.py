"""Tiresias: least attained service in queues, not elastic. No estimate of any length is needed.

Jobs stand in queues by their attained GPU-seconds (`policy.queues`): in a queue by first start, never-started ones
after, by submission. Walk the queues from the top and give each job the size it asks for if so much is free, else
pass it over. Leftovers idle. O(jobs log jobs). (Gu et al., Tiresias: A GPU cluster manager for distributed deep
learning, NSDI 2019.)
"""

from __future__ import annotations

from swell.core.decision import Decision
from swell.core.snapshot import Snapshot
from swell.policy.base import Memory, Purse, give_in_order
from swell.policy.queues import OPTIONS, in_queues
from swell.ports import Random


class Tiresias:
    name = "tiresias"
    elastic = False
    weighs_restarts = False
    OPTIONS = OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        queued, memory = in_queues(snapshot, memory)
        order = [job for _, job in queued]
        grants, explain = give_in_order(order, Purse(snapshot.capacity), requested=True)
        return Decision(grants=grants, explain=explain, memory=memory)
