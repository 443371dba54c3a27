"""The brain: `cycle(snapshot, …) -> Plan`. Pure. The daemon, the simulator and the forecast all call this function."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from swell.core.decision import Decision, Plan
from swell.core.evolve import maker
from swell.core.snapshot import Snapshot
from swell.plan.reconcile import reconcile
from swell.policy import layers
from swell.ports import Placed, Placer, Policy, Random

_priority, _pinned = attrgetter("priority"), attrgetter("pinned")
_make_placed = maker(Placed)


def cycle(snapshot: Snapshot, policy: Policy, placer: Placer, memory: Mapping[str, object], rng: Random) -> Plan:
    """How many for each, then which ones, then the least disruptive way from here to there."""
    decision = layers.decide(policy, snapshot, memory, rng)
    layout = placer.place(snapshot, in_precedence(snapshot, decision), rng)
    return reconcile(snapshot, decision, layout)


def in_precedence(snapshot: Snapshot, decision: Decision) -> list[Placed]:
    """Granted jobs: those that keep their place first, then by priority, then in order of submission."""
    grants, by_id = decision.grants, snapshot.by_id
    granted = [by_id[job] for job in sorted(grants)]
    if len(set(map(_priority, granted))) > 1:
        granted.sort(key=_priority, reverse=True)  # those of one priority stay in order
    if any(map(_pinned, granted)):
        granted.sort(key=_pinned, reverse=True)
    return [_make_placed(view=job, grant=grants[job.id]) for job in granted]
