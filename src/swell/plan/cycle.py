"""One decision: `cycle(snapshot, …) -> Plan`. Pure. The daemon, the simulator and the forecast all call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from swell.core.decision import Decision, Grant, Layout, Plan
from swell.core.evolve import maker
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.snapshot import Snapshot
from swell.core.targets import NO_TARGETS, Targets, targets_in
from swell.plan.confined import ROUNDS, spare
from swell.plan.reconcile import reconcile
from swell.policy import layers
from swell.ports import Placed, Placer, Policy, Random

_priority, _pinned = attrgetter("priority"), attrgetter("pinned")
_make_placed = maker(Placed)


def cycle(snapshot: Snapshot, policy: Policy, placer: Placer, memory: Mapping[str, object], rng: Random) -> Plan:
    """The policy decides sizes, the placer chooses GPUs, and `reconcile` finds the least disruptive changes."""
    before = _without_withdrawn(targets_in(memory), snapshot)

    def decided(seen: Snapshot, keep: Targets) -> tuple[Decision, Layout]:
        decision = layers.decide(policy, seen, memory, rng, keep)
        layout = placer.place(seen, in_precedence(seen, decision, keep), rng)
        handed_on: dict[JobId, Grant] = {}
        for _ in range(0 if seen.options.quotas else ROUNDS):  # with quotas, all jobs of a team count
            rest = spare(seen, decision.grants, layout, handed_on)
            more = layers.decide(policy, rest, memory, rng).grants if rest else {}
            if not more:
                break
            handed_on |= more
            decision = replace(decision, grants={**decision.grants, **more})
            layout = placer.place(seen, in_precedence(seen, decision, keep), rng)
        return decision, layout

    decision, layout = decided(snapshot, NO_TARGETS)
    if before.missed_by(layout.allocations):  # an earlier pass would have stopped a job for nothing
        decision, layout = decided(snapshot, before)
    if moot := _moot(snapshot, layout, before):
        snapshot, before = _as_running(snapshot, moot), before.without(moot)
        decision, layout = decided(snapshot, before)
    return reconcile(snapshot, decision, layout, before)


def _without_withdrawn(before: Targets, snapshot: Snapshot) -> Targets:
    """Targets of jobs in transition, without those whose stop was withdrawn."""
    by_id = snapshot.by_id
    going_on = {id_ for id_ in before.held if (job := by_id.get(id_)) is not None and job.held_n and not job.stopping}
    return before.without(going_on) if going_on else before


def _moot(snapshot: Snapshot, layout: Layout, before: Targets) -> set[JobId]:
    """Stopping jobs whose target allocation is no longer available and whose stop can still be withdrawn."""
    places = layout.allocations
    asked = {job.id: job.allocation for job in snapshot.holding if job.withdrawable and job.allocation is not None}
    return {job for job, had in asked.items() if before.for_nothing(job, places.get(job), had)}


def _as_running(snapshot: Snapshot, moot: set[JobId]) -> Snapshot:
    """The snapshot as if these jobs had not been asked to stop."""
    jobs = tuple(replace(job, stopping=False) if job.id in moot else job for job in snapshot.jobs)
    return snapshot.restricted(jobs, snapshot.capacity)


def in_precedence(snapshot: Snapshot, decision: Decision, keep: Targets = NO_TARGETS) -> list[Placed]:
    """Granted jobs in order of precedence: pinned ones first, then by priority, then by submission. Jobs that got the
    same grant as before come with the places that an earlier pass chose."""
    grants, by_id = decision.grants, snapshot.by_id
    granted = [by_id[job] for job in sorted(grants)]
    if len(set(map(_priority, granted))) > 1:
        granted.sort(key=_priority, reverse=True)  # stable: equal priorities keep their order
    if any(map(_pinned, granted)):
        granted.sort(key=_pinned, reverse=True)
    kept = {job: place for job, place in keep.places.items() if job in grants and _is(grants[job], place)}
    return [_make_placed(view=job, grant=grants[job.id], target=kept.get(job.id)) for job in granted]


def _is(grant: Grant, place: Allocation) -> bool:
    return (grant.n, grant.gpu_type) == (place.n, place.gpu_type)
