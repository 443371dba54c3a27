"""Targets: the allocations of jobs whose GPUs are still being freed, kept until they start.

A pass that stops runs has decided who gets the freed GPUs. The next pass decides again, without those runs and their
restart costs. It may find something better, but it must not give a stopped job its old allocation: then the stop was
for nothing. So a plan keeps the target of every job that waits for others to stop, and the allocations of the stopped
ones, in the decision memory (`memory["targets"]`, which is an event on disk). If a later pass would make a stop
pointless, `plan.cycle` keeps the earlier decision: `policy.layers` keeps the sizes, the placers keep the places.

Entries are plain values, as read from the log. Only `plan.reconcile` writes them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from swell.core.ids import JobId
from swell.core.resources import Allocation, Part, Share

KEY = "targets"
Memory = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`places`: the target allocations; `held`: what stopped jobs had before; both by id, ascending. `at_s`: when a
    plan last stopped runs."""

    at_s: float = 0.0
    places: Mapping[JobId, Allocation] = field(default_factory=dict)
    held: Mapping[JobId, Allocation] = field(default_factory=dict)

    def missed_by(self, places: Mapping[JobId, Allocation]) -> bool:
        """Whether a job would have been stopped for nothing: to be moved, but it gets the same GPUs or none; to be
        resized, but it gets as many as before or none; or to make room for others, but it gets as many as before."""
        return any(self.for_nothing(job, places.get(job), had) for job, had in self.held.items())

    def for_nothing(self, job: JobId, place: Allocation | None, had: Allocation) -> bool:
        target = self.places.get(job)
        if place is None:
            return target is not None
        if target is not None and _amount(target) == _amount(had):
            return place == had
        return _amount(place) == _amount(had)

    def without(self, jobs: Container[JobId]) -> Targets:
        """The targets of all other jobs."""
        places = {job: place for job, place in self.places.items() if job not in jobs}
        return replace(self, places=places, held={job: had for job, had in self.held.items() if job not in jobs})


def _amount(place: Allocation) -> tuple[int, str]:
    return place.n, place.gpu_type


NO_TARGETS = Targets()


def targets_in(memory: Memory) -> Targets:
    kept = memory.get(KEY)
    if not isinstance(kept, Mapping):
        return NO_TARGETS
    return Targets(at_s=kept["at_s"], places=_read(kept["places"]), held=_read(kept["held"]))


def with_targets(memory: Memory, targets: Targets) -> Memory:
    """The memory with these targets only; the same object if there are none before and after."""
    if targets.places or targets.held:
        kept = {"at_s": targets.at_s, "places": _written(targets.places), "held": _written(targets.held)}
        return {**memory, KEY: kept}
    return {key: value for key, value in memory.items() if key != KEY} if KEY in memory else memory


def _written(places: Mapping[JobId, Allocation]) -> dict[str, Any]:
    return {str(job): _entry(place) for job, place in sorted(places.items())}


def _read(entries: Mapping[str, Any]) -> dict[JobId, Allocation]:
    return {job: _allocation(entries[str(job)]) for job in sorted(map(int, entries))}


def _entry(place: Allocation) -> dict[str, Any]:
    share = place.share
    return {
        "parts": [[part.node, list(part.gpus), part.cpus, part.memory_mib] for part in place.parts],
        "type": place.gpu_type,
        "share": [share.memory_mib, share.milli] if share else [],
    }


def _allocation(entry: Any) -> Allocation:
    parts = (Part(node=n, gpus=tuple(gpus), cpus=cpus, memory_mib=mib) for n, gpus, cpus, mib in entry["parts"])
    share = Share(memory_mib=entry["share"][0], milli=entry["share"][1]) if entry["share"] else None
    return Allocation(parts=tuple(parts), gpu_type=entry["type"], share=share)
