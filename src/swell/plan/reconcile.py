"""Finds the least disruptive way from the current allocations to the wanted ones. Pure; `plan.cycle` calls it.

A run that has its wanted allocation continues. A pending job starts if its whole allocation is free now; otherwise it
waits, with a reason, for the jobs that hold it. A running job with another wanted allocation is stopped (or resized in
place if its launcher can); a later pass starts it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from swell.core.capacity import WHOLE_GPU, cpus_of, fits_beside
from swell.core.caps import Left, held_by
from swell.core.decision import (
    Decision,
    Detail,
    Grant,
    Layout,
    Move,
    Plan,
    Reason,
    ReasonCode,
    Reasons,
    Resize,
    Start,
    Stop,
    Withdraw,
)
from swell.core.events import StopWhy
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI, Allocation, Node, Part, Share
from swell.core.snapshot import JobView, Snapshot
from swell.core.targets import NO_TARGETS, Targets, with_targets
from swell.placement.sharing import share_now

_id = attrgetter("id")


@dataclass(slots=True)
class _Draft:
    first: dict[JobId, tuple[Reason, ...]] = field(default_factory=dict)  # these come before the policy's reasons
    withdrawals: list[Withdraw] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    resizes: list[Resize] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    not_yet: dict[JobId, Allocation] = field(default_factory=dict)  # targets that this plan does not reach
    blocked_by: dict[JobId, tuple[JobId, ...]] = field(default_factory=dict)

    def because(self, job: JobId, reason: Reason) -> None:
        self.first[job] = (reason, *self.first.get(job, ()))

    def stop(self, job: JobId, why: StopWhy, reason: str, target: Allocation | None = None) -> None:
        self.stops.append(Stop(job=job, why=why, reason=reason))
        if target is not None:
            self.not_yet[job] = target

    def wait(self, job: JobId, target: Allocation, by: tuple[JobId, ...], until_s: float | None) -> None:
        """Records that the job waits for these jobs to free its GPUs, and until when if that is known."""
        detail: dict[str, Detail] = {"by": ", ".join(map(str, by))}
        if until_s is not None:
            detail["until_s"] = until_s
        self.because(job, Reason(code=ReasonCode.FREEING, detail=detail))
        self.not_yet[job] = target
        self.blocked_by[job] = by


def reconcile(snapshot: Snapshot, decision: Decision, layout: Layout, before: Targets = NO_TARGETS) -> Plan:
    """`before`: target allocations of jobs in transition when this pass began."""
    held = Held(snapshot)
    capped = _Capped(snapshot, layout.allocations)
    draft = _Draft()
    moves = {move.job: move for move in layout.moves}
    places, unplaced = layout.allocations, layout.unplaced
    for job_id, reason in unplaced.items():
        draft.because(job_id, reason)
    for job in _changing(snapshot, places):
        target = places.get(job.id)
        if job.held_n:
            why = "there is no place for it" if job.id in unplaced else "others come first"
            _running(draft, job, target, moves.get(job.id), held, capped, why)
        elif target is not None:
            _waiting(draft, job, target, held, capped)
    return Plan(
        withdrawals=tuple(draft.withdrawals),
        stops=tuple(draft.stops),
        resizes=tuple(draft.resizes),
        starts=tuple(draft.starts),
        explain=partial(_reasons, snapshot, decision, draft.first),
        targets=_targets(decision, layout),
        moves=layout.moves,
        memory=with_targets(decision.memory, _targets_after(snapshot, draft, before)),
        wake_s=decision.wake_s,
    )


def _targets_after(snapshot: Snapshot, draft: _Draft, before: Targets) -> Targets:
    """Targets that later passes keep: those of stopping jobs, and of jobs that wait only for stopping jobs. A job that
    waits for any other job gets a new decision; otherwise it might never start."""
    if not draft.not_yet and not draft.stops:
        return NO_TARGETS
    staying = {withdrawn.job for withdrawn in draft.withdrawals}
    stopping = {job.id for job in snapshot.holding if job.stopping or job.withdrawable} - staying
    leaving = {stop.job for stop in draft.stops} | stopping
    blocked_by = draft.blocked_by
    places = {job: to for job, to in draft.not_yet.items() if leaving.issuperset(blocked_by.get(job, ()))}
    started = {start.job for start in draft.starts}
    held = {job: had for job, had in before.held.items() if job in snapshot.by_id and job not in started}
    stopped = [snapshot.by_id[stop.job] for stop in draft.stops]
    held |= {job.id: job.allocation for job in stopped if job.allocation is not None}
    return Targets(at_s=snapshot.now_s if draft.stops else before.at_s, places=places, held=held)


def _changing(snapshot: Snapshot, places: Mapping[JobId, Allocation]) -> list[JobView]:
    """Jobs that do not simply keep their allocation or keep waiting, in order of submission."""
    by_id = snapshot.by_id
    changing = [job for job in snapshot.holding if _asked(job) or places.get(job.id) is not job.allocation]
    changing += [job for job in map(by_id.__getitem__, places) if not job.held_n]
    return sorted(changing, key=_id)


def _reasons(snapshot: Snapshot, decision: Decision, first: Mapping[JobId, tuple[Reason, ...]]) -> Reasons:
    """Reasons for the jobs of the snapshot only: a custom policy may return some for other jobs."""
    given = decision.why()
    return {job.id: (*first.get(job.id, ()), *given.get(job.id, ())) for job in snapshot.jobs}


def _targets(decision: Decision, layout: Layout) -> Mapping[JobId, Grant]:
    places = layout.allocations
    if len(places) == len(decision.grants):
        return decision.grants
    return {job: grant for job, grant in decision.grants.items() if job in places}


def _running(
    draft: _Draft,
    job: JobView,
    target: Allocation | None,
    move: Move | None,
    held: Held,
    capped: _Capped,
    why: str,
) -> None:
    if job.withdrawable and not job.stopping and target == job.allocation:
        draft.withdrawals.append(Withdraw(job=job.id, reason="what it was to have instead is no longer there for it"))
    elif _asked(job):
        draft.because(job.id, Reason(code=ReasonCode.STOPPING))
        if target is not None:
            draft.not_yet[job.id] = target
    elif target == job.allocation or job.pinned:
        return
    elif target is None:
        draft.stop(job.id, StopWhy.PREEMPTED, why)
    elif job.spec.scales_in_place:
        blocked_by = held.by_others(job.id, target)
        if blocked_by:
            draft.wait(job.id, target, blocked_by, held.free_at_s(blocked_by))
        elif not capped.bars(draft, job, target, held):
            draft.resizes.append(Resize(job=job.id, allocation=target, reason=_change(job, target)))
            held.take(job.id, target)
    elif job.allocation is not None and target.gpus != job.allocation.gpus:
        draft.stop(job.id, StopWhy.RESIZING, _change(job, target), target)
    else:
        reason = move.why if move else f"moves from {_nodes(job.allocation)} to {_nodes(target)}"
        draft.stop(job.id, StopWhy.MIGRATING, reason, target)


def _asked(job: JobView) -> bool:
    """Whether it is stopping, even if `plan.cycle` presents it as running."""
    return job.stopping or job.withdrawable


def _waiting(draft: _Draft, job: JobView, target: Allocation, held: Held, capped: _Capped) -> None:
    blocked_by = held.by_others(job.id, target)
    if blocked_by:
        draft.wait(job.id, target, blocked_by, held.free_at_s(blocked_by))
        return
    if capped.bars(draft, job, target, held):
        return
    held.take(job.id, target)
    draft.starts.append(Start(job=job.id, allocation=target, reason=_start_reason(job, target)))


class _Capped:
    """What jobs hold now under the caps of their namespaces. A stopping job still counts."""

    def __init__(self, snapshot: Snapshot, places: Mapping[JobId, Allocation]) -> None:
        self._left = Left(snapshot.caps)
        self._leaving: list[JobId] = []
        for job in snapshot.holding if snapshot.caps else ():
            if job.allocation is not None and self._left.concerns(job.spec):
                self._left.take(job.spec, held_by(job.allocation))
                if _asked(job) or places.get(job.id) != job.allocation:
                    self._leaving.append(job.id)

    def bars(self, draft: _Draft, job: JobView, target: Allocation, held: Held) -> bool:
        """Whether a cap forbids this allocation now. Then the job waits for stopping jobs, or with the reason."""
        if not self._left.concerns(job.spec):
            return False
        had = held_by(job.allocation) if job.allocation is not None else None
        if had:
            self._left.take(job.spec, had, -1)
        why = self._left.short(job.spec, held_by(target))
        if after := had if why else held_by(target):
            self._left.take(job.spec, after)
        leaving = tuple(other for other in self._leaving if other != job.id)
        if why and leaving:
            draft.wait(job.id, target, leaving, held.free_at_s(leaving))
        elif why:
            draft.because(job.id, why)
        return why is not None


def _nodes(allocation: Allocation | None) -> str:
    return ", ".join(allocation.nodes) if allocation else "nowhere"


def _change(job: JobView, target: Allocation) -> str:
    return f"{job.held_n} -> {target.gpus} GPUs"


def _start_reason(job: JobView, target: Allocation) -> str:
    if target.share:
        return f"a share of one GPU on {_nodes(target)}: {target.share.memory_mib} MiB, accounted but not enforced"
    if not target.gpus:
        return f"no GPU needed; on {_nodes(target)}"
    of = f" of up to {job.max}" if job.max > target.gpus else ""
    return f"{target.gpus}{of} GPU{'s' if target.gpus > 1 or of else ''} on {_nodes(target)}"


class Held:
    """Which jobs hold which GPUs (whole or shared), CPUs and memory now, so that nothing is allocated twice.

    A job on a shared GPU counts with its measured use as soon as there is a measurement."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Lazy: reads only the nodes that a query names."""
        self._snapshot = snapshot
        self._nodes: dict[str, Node] = {}
        self._on: dict[str, list[tuple[JobId, Part, Share]]] | None = None  # what is held on each node
        self._gpus: dict[tuple[str, int], dict[JobId, Share]] = {}
        self._parts: dict[str, dict[JobId, Part]] = {}  # of the nodes asked about
        self._used: dict[str, tuple[int, int]] = {}  # CPUs and memory, by node
        self._overload_milli = snapshot.options.share_overload_milli

    def _look_at(self, name: str) -> None:
        if name in self._parts:
            return
        if self._on is None:
            self._nodes = {node.name: node for node in self._snapshot.nodes}
            self._on = _by_node(self._snapshot, self._nodes)
        self._parts[name] = {}
        for job, part, share in self._on.get(name, ()):
            self._take(job, part, share)

    def take(self, job: JobId, allocation: Allocation) -> None:
        share = allocation.share or WHOLE_GPU
        for part in allocation.parts:
            self._look_at(part.node)
            self._take(job, part, share)

    def _take(self, job: JobId, part: Part, share: Share) -> None:
        for gpu in part.gpus:
            self._gpus.setdefault((part.node, gpu), {})[job] = share
        before = self._parts[part.node].get(job)
        self._add(part, 1)
        if before is not None:
            self._add(before, -1)
        self._parts[part.node][job] = part

    def _add(self, part: Part, sign: int) -> None:
        cpus, memory_mib = self._used.get(part.node, (0, 0))
        self._used[part.node] = (cpus + sign * part.cpus, memory_mib + sign * part.memory_mib)

    def by_others(self, job: JobId, target: Allocation) -> tuple[JobId, ...]:
        """Jobs that hold what `target` needs. Empty: it can start now."""
        blockers: dict[JobId, None] = {}
        share = target.share or WHOLE_GPU
        for part in target.parts:
            self._look_at(part.node)
            for gpu in part.gpus:
                others = {who: held for who, held in self._gpus.get((part.node, gpu), {}).items() if who != job}
                if others and not self._room(part.node, gpu, share, others):
                    blockers.update(dict.fromkeys(others))
            if not self._hosts(job, part):
                blockers.update((who, None) for who in self._parts.get(part.node, {}) if who != job)
        return tuple(sorted(blockers))

    def free_at_s(self, jobs: Sequence[JobId]) -> float | None:
        """When the last of these jobs is expected to reach its next checkpoint; None: unknown."""
        now_s, by_id = self._snapshot.now_s, self._snapshot.by_id
        unsaved = [job.unsaved for job in map(by_id.__getitem__, jobs) if job.unsaved is not None]
        waits_s = [wait_s for one in unsaved if (wait_s := one.boundary_in_s(now_s)) is not None]
        return now_s + max(waits_s) if waits_s else None

    def _room(self, name: str, index: int, share: Share, others: Mapping[JobId, Share]) -> bool:
        if any(held.milli >= GPU_MILLI for held in others.values()):
            return False
        node = self._nodes.get(name)
        gpu = next((g for g in node.gpus if g.index == index), None) if node else None
        used_mib = sum(held.memory_mib for held in others.values())
        used = Share(memory_mib=used_mib, milli=sum(held.milli for held in others.values()))
        return fits_beside(share, used, gpu, self._overload_milli)

    def _hosts(self, job: JobId, part: Part) -> bool:
        """Whether the node has the CPUs and memory for this part beside other jobs. Alone on the node it always fits: a
        node whose inventory shrank must not hold back a job that was placed before."""
        node = self._nodes.get(part.node)
        mine = self._parts.get(part.node, {}).get(job)
        cpus, memory_mib = self._used.get(part.node, (0, 0))
        if mine is not None:
            cpus, memory_mib = cpus - mine.cpus, memory_mib - mine.memory_mib
        if node is None or not (cpus or memory_mib):
            return True
        return cpus + part.cpus <= cpus_of(node) and memory_mib + part.memory_mib <= node.memory_mib


def _by_node(snapshot: Snapshot, nodes: Mapping[str, Node]) -> dict[str, list[tuple[JobId, Part, Share]]]:
    found: dict[str, list[tuple[JobId, Part, Share]]] = {}
    for job in snapshot.holding:
        if job.allocation is not None:
            held = job.allocation if job.allocation.share is None else _as_measured(job, job.allocation, nodes)
            share = held.share or WHOLE_GPU
            for part in held.parts:
                found.setdefault(part.node, []).append((job.id, part, share))
    return found


def _as_measured(job: JobView, allocation: Allocation, nodes: Mapping[str, Node]) -> Allocation:
    if not allocation.gpus:
        return allocation
    part = allocation.parts[0]
    node = nodes.get(part.node)
    gpu = next((g for g in node.gpus if g.index == part.gpus[0]), None) if node else None
    return replace(allocation, share=share_now(job, gpu)) if gpu else allocation
