"""Swell, the default policy: least mean completion time without starving anybody. Ours; it generalises heSRPT
(SIGMETRICS'20).

Read `reference` first: it states the algorithm for one GPU type in scalar code. `vectorised` makes the same decisions
for thousands of jobs at once and is what runs; a property test holds the two together. `several_types` is what clusters
of several GPU types add. `settings` has every number that was chosen. `columns` reads job views into arrays, `market`
sells GPUs to who values them most, `reasons` says why. docs/explanation/the-swell-policy.md explains the thinking.
"""

from swell.policy.swell.policy import Swell
from swell.policy.swell.settings import OPTIONS

__all__ = ["OPTIONS", "Swell"]
