"""What `spread` and `round-robin` share: their own order of nodes, and otherwise the rules of every placer.

Jobs keep their place and are moved only for the sake of one that fragmentation keeps out.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.placement.arrange import Arrangement, sort_out
from swell.placement.defrag import make_room
from swell.placement.fit import Strategy
from swell.placement.room import Topology
from swell.ports import Placed

TRIES = 16


def place_in_order(snapshot: Snapshot, topology: Topology, wanted: Sequence[Placed], strategy: Strategy) -> Layout:
    out = sort_out(topology, wanted)
    if out.settled:
        return out.as_is()
    arrangement = Arrangement(snapshot, topology, wanted, out, strategy)
    arrangement.place_all(arrangement.settle(out))
    for placed in arrangement.left_out()[:TRIES]:
        make_room(arrangement, placed)
    arrangement.settle_for_less()
    return arrangement.layout()
