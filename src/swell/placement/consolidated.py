"""Consolidated best fit, the default: jobs keep their place; a new one goes to as few nodes as possible.

A job goes to the tightest node that takes it whole, else to as few nodes (then switches) as possible.
O(jobs) when nothing changed; O(nodes) at worst for each job that has to be put somewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.placement.arrange import Arrangement, sort_out
from swell.ports import Placed, Random


class Consolidated:
    name = "consolidated"

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        out = sort_out(snapshot, wanted)
        if not out.todo and not out.check_shares:
            return Layout(allocations={p.view.id: p.view.allocation for p in out.stay if p.view.allocation})
        arrangement = Arrangement(snapshot, wanted)
        arrangement.place_all(arrangement.settle(out))
        arrangement.settle_for_less()
        return arrangement.layout()
