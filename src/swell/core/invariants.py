"""Invariants of a state and of a history. Tests check them; each violation is a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from swell.core import events as ev
from swell.core.events import Event, StopWhy
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.state import JobRecord, State


def violations(state: State) -> list[str]:
    """All violations of a state; empty if there are none."""
    return [*_indices(state), *_jobs(state), *_gpus(state)]


def _indices(state: State) -> list[str]:
    wrong = []
    listed = {*state.active, *state.ended}
    if listed != set(state.jobs):
        wrong.append(f"jobs {sorted(listed ^ set(state.jobs))} are in the record or in the lists, not in both")
    if both := sorted(set(state.active) & set(state.ended)):
        wrong.append(f"jobs {both} are active and ended")
    for job in state.active:
        if state.jobs[job].ended:
            wrong.append(f"job {job} has ended but is listed as active")
    return wrong


def _jobs(state: State) -> list[str]:
    return [text for job in state.active for text in _job(state.jobs[job])]


def _job(record: JobRecord) -> list[str]:
    wrong = []
    allocation = record.allocation
    if record.holding and (allocation is None or record.run is None or record.run.ended_s is not None):
        wrong.append(f"job {record.id} is {record.state} without a run that holds something")
    whole = allocation is not None and allocation.share is None and not record.spec.cpu_only
    if whole and allocation is not None and allocation.gpus not in record.spec.gpus.sizes():
        wrong.append(f"job {record.id} holds {allocation.gpus} GPUs, allowed are {record.spec.gpus.sizes()}")
    if record.attempts and (record.run is None or record.run.id.attempt != record.attempts):
        wrong.append(f"job {record.id} has {record.attempts} attempts but its run is {record.run}")
    return wrong


def _gpus(state: State) -> list[str]:
    """No GPU is allocated twice, and the shares of one GPU do not exceed its memory."""
    used_mib: dict[tuple[str, int], int] = {}
    holders: dict[tuple[str, int], list[JobId]] = {}
    for job in state.active:
        allocation = state.jobs[job].allocation
        for key in allocation.gpu_keys if allocation else ():
            share = allocation.share if allocation else None
            used_mib[key] = used_mib.get(key, 0) + (share.memory_mib if share else 0)
            holders.setdefault(key, []).append(job)
    wrong = []
    for key, jobs in holders.items():
        shared = all((a := state.jobs[job].allocation) is not None and a.share is not None for job in jobs)
        if len(jobs) > 1 and not shared:
            wrong.append(f"GPU {key[1]} of {key[0]} is held by jobs {jobs}")
    total_mib = {(n.name, g.index): g.memory_mib for n in state.nodes.values() for g in n.gpus}
    for key, used in used_mib.items():
        if 0 < total_mib.get(key, 0) < used:
            wrong.append(f"GPU {key[1]} of {key[0]} has {total_mib[key]} MiB, {used} are reserved")
    return wrong


NEWS = (ev.NodeObserved, ev.NodeConditionChanged, ev.NodeRemoved, ev.PriorityChanged, ev.PolicySet, ev.JobResumed)
"""After these a plan that is being carried out may be dropped."""


def stops_for_nothing(events: Iterable[Event]) -> list[str]:
    """Runs that a plan stopped to resize and that continued with as many GPUs as before, or stopped to move and that
    continued on the same GPUs. That is allowed only if the nodes, the policy or priorities changed meanwhile, or a job
    of higher priority came."""
    wrong: list[str] = []
    held: dict[JobId, Allocation] = {}
    stopped: dict[JobId, StopWhy] = {}
    priority: dict[JobId, int] = {}
    for event in events:
        if isinstance(event, ev.JobSubmitted):
            priority[event.job] = event.spec.priority
            stopped = {job: why for job, why in stopped.items() if priority[job] >= event.spec.priority}
        elif isinstance(event, NEWS):
            stopped.clear()
        elif isinstance(event, ev.RunStopRequested):
            stopped[event.run.job] = event.why
        elif isinstance(event, ev.RunStopWithdrawn) or _ended_otherwise(event):
            stopped.pop(event.run.job, None)
        elif isinstance(event, ev.RunPlanned | ev.RunResized):
            job, before = event.run.job, held.get(event.run.job)
            if before is not None and _for_nothing(stopped.pop(job, None), before, event.allocation):
                wrong.append(f"run {event.run} has at {event.at_s:g} s what the run before it was stopped to give up")
            held[job] = event.allocation
    return wrong


def _ended_otherwise(event: Event) -> TypeGuard[ev.RunEnded]:
    return isinstance(event, ev.RunEnded) and event.reason is not ev.ExitReason.STOPPED


def _for_nothing(why: StopWhy | None, before: Allocation, after: Allocation) -> bool:
    if why is StopWhy.MIGRATING:
        return after == before
    return why is StopWhy.RESIZING and (after.n, after.gpu_type) == (before.n, before.gpu_type)
