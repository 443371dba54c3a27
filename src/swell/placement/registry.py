"""Placers by name. Explicit: what is not listed here does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swell.core.errors import NotFound
from swell.core.spelling import instead_of
from swell.placement.branch_and_bound import BranchAndBound
from swell.placement.consolidated import Consolidated
from swell.placement.genetic import Genetic
from swell.placement.hungarian import Hungarian
from swell.placement.round_robin import RoundRobin
from swell.placement.spread import Spread
from swell.ports import Placer

PLACERS: Mapping[str, Callable[[], Placer]] = {
    "consolidated": Consolidated,
    "spread": Spread,
    "round-robin": RoundRobin,
    "hungarian": Hungarian,
    "genetic": Genetic,
    "branch-and-bound": BranchAndBound,
}
DEFAULT_PLACER = "consolidated"


def placer_named(name: str) -> Placer:
    make = PLACERS.get(name)
    if make is None:
        raise NotFound(f"there is no placer named {name!r}; {instead_of(name, sorted(PLACERS))}")
    return make()
