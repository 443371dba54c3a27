"""Where jobs go whose GPUs are still being freed, remembered until they are there.

A pass that stops runs has decided what the freed GPUs are for. The next pass weighs that again, without those runs and
their restart costs. It may find something better, but it must not give a stopped job back what it had: then the stop
was for nothing. So a plan keeps the allocation of every job that waits for others to leave, and what the stopped ones
held, in the decision memory (`memory["targets"]`, which is an event on disk). Where a later pass would stop a job for
nothing, `plan.cycle` lets the earlier decision stand: `policy.layers` keeps to the sizes, the placers to the places.

Entries are plain values, as a log returns them. Written by `plan.reconcile` alone.
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
    """`places`: what jobs are on their way to; `held`: what stopped ones had before; both by id, ascending. `at_s`:
    when a plan last stopped runs for it."""

    at_s: float = 0.0
    places: Mapping[JobId, Allocation] = field(default_factory=dict)
    held: Mapping[JobId, Allocation] = field(default_factory=dict)

    def missed_by(self, places: Mapping[JobId, Allocation]) -> bool:
        """Would one have been stopped for nothing? It was to be moved and gets the same GPUs or none; to be resized,
        and gets as many as it had or none; to make room for others, and gets as many as it had."""
        return any(self.for_nothing(job, places.get(job), had) for job, had in self.held.items())

    def for_nothing(self, job: JobId, place: Allocation | None, had: Allocation) -> bool:
        target = self.places.get(job)
        if place is None:
            return target is not None
        if target is not None and _amount(target) == _amount(had):
            return place == had
        return _amount(place) == _amount(had)

    def without(self, jobs: Container[JobId]) -> Targets:
        """The plan for all others."""
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
    """The memory with these targets and no others; the same object where there were none and are none."""
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
