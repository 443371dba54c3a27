"""The brain: `cycle(snapshot, …) -> Plan`. Pure. The daemon, the simulator and the forecast all call this function."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from swell.core.decision import Decision, Grant, Layout, Plan
from swell.core.evolve import maker
from swell.core.resources import Allocation
from swell.core.snapshot import Snapshot
from swell.core.targets import NO_TARGETS, Targets, targets_in
from swell.plan.reconcile import reconcile
from swell.policy import layers
from swell.ports import Placed, Placer, Policy, Random

_priority, _pinned = attrgetter("priority"), attrgetter("pinned")
_make_placed = maker(Placed)


def cycle(snapshot: Snapshot, policy: Policy, placer: Placer, memory: Mapping[str, object], rng: Random) -> Plan:
    """How many for each, then which ones, then the least disruptive way from here to there."""
    before = targets_in(memory)

    def decided(keep: Targets) -> tuple[Decision, Layout]:
        decision = layers.decide(policy, snapshot, memory, rng, keep)
        return decision, placer.place(snapshot, in_precedence(snapshot, decision, keep), rng)

    decision, layout = decided(NO_TARGETS)
    if before.missed_by(layout.allocations):  # somebody would have been stopped for nothing
        decision, layout = decided(before)
    return reconcile(snapshot, decision, layout, before)


def in_precedence(snapshot: Snapshot, decision: Decision, keep: Targets = NO_TARGETS) -> list[Placed]:
    """Granted jobs: those that keep their place first, then by priority, then in order of submission; with the places
    to keep to, for those that were granted the same again."""
    grants, by_id = decision.grants, snapshot.by_id
    granted = [by_id[job] for job in sorted(grants)]
    if len(set(map(_priority, granted))) > 1:
        granted.sort(key=_priority, reverse=True)  # those of one priority stay in order
    if any(map(_pinned, granted)):
        granted.sort(key=_pinned, reverse=True)
    kept = {job: place for job, place in keep.places.items() if job in grants and _is(grants[job], place)}
    return [_make_placed(view=job, grant=grants[job.id], target=kept.get(job.id)) for job in granted]


def _is(grant: Grant, place: Allocation) -> bool:
    return (grant.n, grant.gpu_type) == (place.n, place.gpu_type)
