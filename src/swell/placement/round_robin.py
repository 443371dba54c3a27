"""Round-robin: nodes in turn, beginning one further on with each job id. The plain baseline to compare with.

No state is kept from pass to pass: where a job begins follows from its id. O(nodes) per job.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.placement.fit import in_turn
from swell.placement.room import Topology
from swell.placement.simple import place_in_order
from swell.ports import Placed, Random


class RoundRobin:
    name = "round-robin"

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        return place_in_order(snapshot, Topology(snapshot.nodes), wanted, in_turn)
