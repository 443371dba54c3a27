"""Declared slots: GPUs that an operator declared on a machine without a driver. Pure; used by the inventory."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from swell.core.resources import Gpu, GpuHealth

SLOT = "slot"
"""Type of declared GPUs."""
LEAVING = "there are fewer slots now; it goes when its job has ended"


def slots(declared: int, held: AbstractSet[int]) -> tuple[Gpu, ...]:
    """The declared slots. If their number shrinks, free ones disappear at once; held ones stay until their runs end,
    and no other run gets those beyond the number."""
    kept = sorted(held)
    free = [index for index in range(declared + len(kept)) if index not in held][: max(0, declared - len(kept))]
    leaving = frozenset(kept[declared:])
    return tuple(_slot(index, leaving=index in leaving) for index in sorted([*kept, *free]))


def _slot(index: int, *, leaving: bool) -> Gpu:
    if leaving:
        return Gpu(index=index, type=SLOT, health=GpuHealth.QUARANTINED, why=LEAVING)
    return Gpu(index=index, type=SLOT)
