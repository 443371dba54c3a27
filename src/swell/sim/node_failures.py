"""Random failures of nodes, by a seed: nodes are lost and come back. `sim.simulate` adds them to a case's events."""

from __future__ import annotations

import random
from collections.abc import Sequence

from swell.core.events import Event, NodeConditionChanged
from swell.core.resources import Node, NodeCondition
from swell.sim.workload import Workload

REPAIR_S = 1800.0
AFTER_LAST_S = 7 * 86400.0
"""Nodes go on failing for so long after the last arrival."""


def failures(nodes: Sequence[Node], workload: Workload, mean_hours: float, seed: int) -> tuple[Event, ...]:
    """Each node fails on average every `mean_hours` (exponential) and is back after half an hour. 0: never."""
    if mean_hours <= 0 or not workload.arrivals:
        return ()
    until_s = workload.arrivals[-1].at_s + AFTER_LAST_S
    events: list[Event] = []
    for node in nodes:
        rng = random.Random(f"{seed}/failure/{node.name}")  # noqa: S311 - a simulation
        at_s = rng.expovariate(1 / (mean_hours * 3600))
        while at_s < until_s:
            lost = NodeConditionChanged(node=node.name, condition=NodeCondition.LOST, at_s=at_s, why="failed")
            back_s = at_s + REPAIR_S
            events += [lost, NodeConditionChanged(node=node.name, condition=NodeCondition.READY, at_s=back_s)]
            at_s = back_s + rng.expovariate(1 / (mean_hours * 3600))
    return tuple(events)
