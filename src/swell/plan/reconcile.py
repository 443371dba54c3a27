"""From where things are to where they should be, least disruptive first.

A run whose allocation is right is left alone. A queued job starts when everything it was given is free now; what others
still hold it waits for, with a reason. A running job that should hold something else is stopped (or resized in place if
its launcher can); a later pass starts it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swell.core.decision import Decision, Grant, Layout, Move, Plan, Reason, ReasonCode, Resize, Start, Stop
from swell.core.events import StopWhy
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI, Allocation
from swell.core.snapshot import JobView, Snapshot


@dataclass(slots=True)
class _Draft:
    stops: list[Stop] = field(default_factory=list)
    resizes: list[Resize] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    reasons: dict[JobId, tuple[Reason, ...]] = field(default_factory=dict)


def reconcile(snapshot: Snapshot, decision: Decision, layout: Layout) -> Plan:
    held = Held(snapshot)
    draft = _Draft()
    moves = {move.job: move for move in layout.moves}
    for job in snapshot.jobs:
        given = decision.reasons.get(job.id, ())
        target = layout.allocations.get(job.id)
        if target is None and job.id in layout.unplaced:
            given = (layout.unplaced[job.id], *given)
        draft.reasons[job.id] = given
        if job.held_n:
            _running(draft, job, target, given, moves.get(job.id), held)
        elif target is not None:
            _waiting(draft, job, target, held)
    return Plan(
        stops=tuple(draft.stops),
        resizes=tuple(draft.resizes),
        starts=tuple(draft.starts),
        reasons=draft.reasons,
        targets=_targets(decision, layout),
        moves=layout.moves,
        memory=decision.memory,
        wake_s=_wake_s(draft.reasons),
    )


def _targets(decision: Decision, layout: Layout) -> Mapping[JobId, Grant]:
    return {job: grant for job, grant in decision.grants.items() if job in layout.allocations}


def _wake_s(reasons: Mapping[JobId, tuple[Reason, ...]]) -> float | None:
    times = [float(r.detail["until_s"]) for rs in reasons.values() for r in rs if "until_s" in r.detail]
    return min(times, default=None)


def _running(
    draft: _Draft,
    job: JobView,
    target: Allocation | None,
    given: tuple[Reason, ...],
    move: Move | None,
    held: Held,
) -> None:
    if job.stopping:
        draft.reasons[job.id] = (Reason(code=ReasonCode.STOPPING), *given)
    elif target == job.allocation or job.pinned:
        return
    elif target is None:
        draft.stops.append(Stop(job=job.id, why=StopWhy.PREEMPTED, reason="others come first"))
    elif job.spec.scales_in_place:
        blocked_by = held.by_others(job.id, target)
        if blocked_by:
            draft.reasons[job.id] = (_freeing(blocked_by), *given)
        else:
            draft.resizes.append(Resize(job=job.id, allocation=target, reason=_change(job, target)))
            held.take(job.id, target)
    elif job.allocation is not None and target.gpus != job.allocation.gpus:
        draft.stops.append(Stop(job=job.id, why=StopWhy.RESIZING, reason=_change(job, target)))
    else:
        reason = move.why if move else f"moves from {_nodes(job.allocation)} to {_nodes(target)}"
        draft.stops.append(Stop(job=job.id, why=StopWhy.MIGRATING, reason=reason))


def _waiting(draft: _Draft, job: JobView, target: Allocation, held: Held) -> None:
    blocked_by = held.by_others(job.id, target)
    if blocked_by:
        draft.reasons[job.id] = (_freeing(blocked_by), *draft.reasons[job.id])
        return
    held.take(job.id, target)
    draft.starts.append(Start(job=job.id, allocation=target, reason=_start_reason(job, target)))


def _freeing(by: tuple[JobId, ...]) -> Reason:
    return Reason(code=ReasonCode.FREEING, detail={"by": ", ".join(map(str, by))})


def _nodes(allocation: Allocation | None) -> str:
    return ", ".join(allocation.nodes) if allocation else "nowhere"


def _change(job: JobView, target: Allocation) -> str:
    return f"{job.held_n} -> {target.gpus} GPUs"


def _start_reason(job: JobView, target: Allocation) -> str:
    if target.share:
        return f"a share of one GPU on {_nodes(target)}"
    if not target.gpus:
        return f"no GPU needed; on {_nodes(target)}"
    of = f" of up to {job.max}" if job.max > target.gpus else ""
    return f"{target.gpus}{of} GPU{'s' if target.gpus > 1 or of else ''} on {_nodes(target)}"


class Held:
    """Who holds what right now, so that nothing is given twice: GPUs (whole, or by share), CPUs and memory."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._gpus: dict[tuple[str, int], dict[JobId, tuple[int, int]]] = {}
        self._overload = snapshot.options.share_overload_milli
        for job in snapshot.jobs:
            if job.allocation is not None:
                self.take(job.id, job.allocation)

    def take(self, job: JobId, allocation: Allocation) -> None:
        for key, amount in _gpu_amounts(allocation):
            self._gpus.setdefault(key, {})[job] = amount

    def by_others(self, job: JobId, target: Allocation) -> tuple[JobId, ...]:
        """Jobs that hold what `target` needs. Empty: it can start now."""
        blockers: dict[JobId, None] = {}
        for key, (milli, memory_mib) in _gpu_amounts(target):
            others = {who: amount for who, amount in self._gpus.get(key, {}).items() if who != job}
            if others and not self._room(key, milli, memory_mib, others):
                blockers.update(dict.fromkeys(others))
        return tuple(sorted(blockers))

    def _room(self, key: tuple[str, int], milli: int, memory_mib: int, others: Mapping[JobId, tuple[int, int]]) -> bool:
        if milli >= GPU_MILLI or any(used >= GPU_MILLI for used, _ in others.values()):
            return False
        node = self._nodes.get(key[0])
        total_mib = next((g.memory_mib for g in node.gpus if g.index == key[1]), 0) if node else 0
        used_mib = sum(memory for _, memory in others.values()) + memory_mib
        used_milli = sum(used for used, _ in others.values()) + milli
        return used_milli <= self._overload and (total_mib == 0 or used_mib <= total_mib)


def _gpu_amounts(allocation: Allocation) -> list[tuple[tuple[str, int], tuple[int, int]]]:
    share = allocation.share
    amount = (share.milli, share.memory_mib) if share else (GPU_MILLI, 0)
    return [((part.node, gpu), amount) for part in allocation.parts for gpu in part.gpus]
