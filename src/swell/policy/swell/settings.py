"""Every number of the policy that was chosen: options that a person may set, and constants.

`policy` reads the options of a snapshot here; `reference` and `vectorised` use both. How each was chosen and how much
results move with it is in docs/explanation/the-swell-policy.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.core.snapshot import Snapshot
from swell.policy import options as opts

OPTIONS: opts.Options = {
    "price": opts.Option(
        default=3.0, low=0, high=1000, doc="of a GPU-second in lost seconds of longer jobs; above 1: more will arrive"
    ),
    "arrivals": opts.Option(
        default=1.0, low=0, high=1000, doc="jobs counted as longer than even the longest: those that will arrive"
    ),
    "efficiency": opts.Option(
        default=0.0,
        low=0,
        high=1,
        doc="0: least mean completion time; 1: most work per GPU hour, whoever's it is; between: in between",
    ),
    "restart": opts.Option(default=3.0, low=0, high=1000, doc="how many restarts a change of size is charged with"),
    "horizon_s": opts.Option(
        default=600.0,
        low=1,
        high=1e9,
        doc="how long a size is expected to last, or as long as it has: a change must pay its restart in that",
    ),
    "tolerance": opts.Option(
        default=1.2, low=1, high=1000, doc="lateness up to which nobody is helped, over that of the median job (or 1)"
    ),
    "fairness": opts.Option(
        default=4.0, low=0, high=20, doc="power of its lateness beyond that by which a late job weighs more"
    ),
    "promise": opts.Option(
        default=1.5,
        low=1,
        high=1000,
        doc="finish-time fairness, over the median job's (or 1): speed to end within it counts more on several types",
    ),
}

START = 1.0
"""How many restarts the start of a waiting job is charged with."""
LEVEL = 20.0
"""In restart costs: a job of unknown length is assumed to be longer after this much work, and at each doubling."""
FIRST_TRIES = 12
"""Number of steps that did not fit into what was left and are tried first."""
WORTH_TRYING = 1.01
"""They are tried where the sum of values may grow by this factor: on a small cluster, or for a very large job."""
BETTER = 1 + 1e-9
"""Greater by less than this is rounding."""
MOST_LATE = 4.0
"""Lateness beyond this makes no further difference: the starvation guard is for that."""
MOST_URGENT = 10.0
"""The most a deadline can multiply a job's weight by."""
LEAST_LEFT = 0.02
"""Of the estimate: no job is expected to end sooner."""
THERE_AND_BACK = 2.0
"""Restarts that a move to another type of GPU costs beyond the one of a change of size: a job that leaves a type to
make room for a short one goes back when that has ended, and so does the job that the move pushed aside on the other
type."""
PROMISED = 2.0
"""What the speed that a job needs to end within `promise` is worth beyond what it is worth anyhow."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as numbers."""

    price: float
    arrivals: float
    efficiency: float
    restart: float
    horizon_s: float
    tolerance: float
    fairness: float
    promise: float


def settings_of(snapshot: Snapshot) -> Settings:
    return Settings(*(opts.number(snapshot, OPTIONS, name) for name in Settings.__slots__))
