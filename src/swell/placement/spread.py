"""Spread: each job goes whole to the node with the most room. Nodes are loaded evenly, so each job has more CPU, memory
bandwidth and cooling to itself, and a lost node takes fewer jobs along; large jobs find fewer whole nodes.
O(nodes) per job.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.placement.fit import roomiest_first
from swell.placement.room import Topology
from swell.placement.simple import place_in_order
from swell.ports import Placed, Random


class Spread:
    name = "spread"

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        return place_in_order(snapshot, Topology(snapshot.nodes), wanted, roomiest_first)
