"""What holds for every policy, so that none has to do it.

Order: runs that may not be stopped, runs that changed a moment ago and runs on cordoned nodes keep exactly what they
hold. Teams that have used up their GPU hours get nothing (`policy.budgets`), nor do jobs beyond what their namespace
may have (`policy.caps`). Where an earlier plan stands, so do all that it gave and left alone (`core.targets`). Then
each priority class, highest first, on what is left: starving jobs (`policy.starvation`); the policy, team by team where
there are quotas (`policy.quotas`); changes of running jobs that do not pay are undone (`policy.resizing`). What that
leaves goes, with an elastic policy, to whoever gains from it; an inelastic policy is asked again, since it may hold
jobs back. Every job that gets nothing has a reason.

A policy that weighs the cost of restarts itself declares `weighs_restarts = True`: its sizes of running jobs are left
alone. All of it is O(jobs) beside the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from swell.core.decision import Decision, Reason, ReasonCode, Reasons
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI, NodeCondition
from swell.core.snapshot import Capacity, JobView, Snapshot
from swell.core.targets import NO_TARGETS, Targets
from swell.policy import budgets, caps, quotas
from swell.policy.base import Memory, grant
from swell.policy.ledger import Ledger
from swell.policy.resizing import fill, held_grant, start_chosen, weigh
from swell.policy.starvation import Guard
from swell.ports import Policy, Random

Jobs = tuple[JobView, ...]
_id = attrgetter("id")
_priority: Callable[[JobView], int] = attrgetter("priority")


def decide(policy: Policy, snapshot: Snapshot, memory: Memory, rng: Random, keep: Targets = NO_TARGETS) -> Decision:
    """`keep`: what an earlier pass decided and this one is to stand by."""
    jobs = _by_submission(snapshot)
    ledger = Ledger(caps.bounded(snapshot) if snapshot.caps else snapshot)
    free = _keep_what_must_be_kept(snapshot, jobs, ledger, keep)
    within = caps.Within(snapshot, ledger)
    kept = frozenset(ledger.grants)
    free = within.possible(budgets.within(snapshot, free, ledger))
    bound = _keep_to_targets(snapshot, free, ledger, keep)
    apart = bound | _leave_out_stopped(snapshot, free, ledger, keep)
    free = tuple(job for job in free if job.id not in apart) if apart else free
    guard = Guard(snapshot, memory, elastic=policy.elastic, bound=bound)
    table = _Table(policy, snapshot, memory, rng, ledger)
    for members in _classes(free):
        others, served = guard.serve(members, ledger)
        by_right = table.serve(others)
        in_order = sorted((*others, *served), key=_id) if served else others
        table.settle(in_order, by_right)
    if within.cut(jobs, kept | bound.keys()):
        table.hand_on([job for job in free if job.spec.kubernetes is None])
    return Decision(
        grants=ledger.grants,
        explain=partial(_explained, snapshot, jobs, ledger, within),
        memory=_without_ended(guard.memory(table.memory), jobs),
        wake_s=ledger.wake_s,
    )


def _by_submission(snapshot: Snapshot) -> Jobs:
    """Ids are given in that order. They nearly always are in order already, which is found out faster than sorted."""
    ids = list(snapshot.by_id)
    return snapshot.jobs if ids == sorted(ids) else tuple(sorted(snapshot.jobs, key=_id))


class _Table:
    """Where the policy is asked, its memory handed on from call to call."""

    def __init__(self, policy: Policy, snapshot: Snapshot, memory: Memory, rng: Random, ledger: Ledger) -> None:
        self._policy, self._snapshot, self._rng, self._ledger = policy, snapshot, rng, ledger
        self.memory = memory

    def serve(self, jobs: Sequence[JobView]) -> Sequence[JobView]:
        """Decide about these jobs; the same jobs, those within their team's quota first."""
        ledger = self._ledger
        if not ledger.quotas:
            self._decide(jobs)
            return jobs
        capacity = ledger.capacity(self._snapshot)
        groups = quotas.split(jobs, ledger, capacity, self._ask, elastic=self._policy.elastic)
        self._decide(groups.entitled)
        weigh_entitled = partial(self._weigh, groups.entitled)
        if self._policy.elastic:
            quotas.give_back(groups.entitled, ledger, self._snapshot, weigh_entitled)
        elif weigh_entitled():
            self._offer_what_is_left(groups.entitled)
        self._decide(groups.borrowing)
        quotas.explain_borrowers(groups.borrowing, ledger)
        return groups.by_right()

    def settle(self, jobs: Sequence[JobView], by_right: Sequence[JobView]) -> None:
        """Undo changes that do not pay, give jobs within their quota what others borrowed, use what is left. An
        inelastic policy is asked who gets that: it may hold jobs back although there is room."""
        policy, ledger, snapshot = self._policy, self._ledger, self._snapshot
        undone = self._weigh(jobs)
        if policy.elastic:
            if ledger.quotas:
                quotas.take_back(by_right, ledger, snapshot, elastic=True)
            fill(jobs, ledger, snapshot, resize=not policy.weighs_restarts)
        elif undone or ledger.quotas:
            if ledger.quotas:
                self._take_back(by_right)
            self._offer_what_is_left(jobs)

    def hand_on(self, jobs: Sequence[JobView]) -> None:
        """What a cap has taken back goes to jobs that are under none."""
        if self._policy.elastic:
            fill(jobs, self._ledger, self._snapshot, resize=not self._policy.weighs_restarts)
        else:
            self._offer_what_is_left(jobs)

    def _weigh(self, jobs: Sequence[JobView]) -> bool:
        """Undo changes that do not pay. Were there any?"""
        return not self._policy.weighs_restarts and weigh(jobs, self._ledger, self._snapshot.now_s)

    def _take_back(self, by_right: Sequence[JobView]) -> None:
        """Ask the policy which jobs within their quota to start on what is free and what others borrowed. Jobs it
        names that still cannot start are left out, and it is asked again."""
        ledger, missed = self._ledger, dict[JobId, None]()
        while True:
            within = quotas.within(by_right, ledger)
            asked = sorted((job for job in within if job.id not in missed), key=_id)
            room = quotas.reclaimable(by_right, ledger)
            if not any(job.requested * job.gpu_milli <= max(room.values(), default=0) for job in asked):
                return
            grants = self._ask(asked, replace(ledger.capacity(self._snapshot), gpu_milli=room)).grants
            chosen = dict.fromkeys(job.id for job in asked if job.id in grants)
            quotas.take_back(by_right, ledger, self._snapshot, elastic=False, only=chosen)
            failed = [job for job in chosen if job not in ledger.grants]
            if not failed:
                return
            missed.update(dict.fromkeys(failed))

    def _offer_what_is_left(self, jobs: Sequence[JobView]) -> None:
        """Ask the policy again about the jobs that got nothing. One for which CPUs, memory or its team's limit do not
        suffice is left out, and the policy asked about the others."""
        ledger, refused = self._ledger, dict[JobId, None]()
        while True:
            waiting = [job for job in jobs if job.id not in ledger.grants and job.id not in refused]
            waiting = [job for job in waiting if ledger.may_use(job, job.requested)]
            if not any(ledger.purse.best_type(job, job.requested) is not None for job in waiting):
                return
            asked = self._asked(waiting, ledger.capacity(self._snapshot))
            part = self._policy.decide(asked, self.memory, self._rng)
            ledger.note(part)
            failed = start_chosen(asked.by_id, part.grants, ledger, self._snapshot)
            if not failed:
                return
            refused.update(dict.fromkeys(failed))

    def _decide(self, jobs: Sequence[JobView]) -> None:
        if jobs:
            asked = self._asked(jobs, self._ledger.capacity(self._snapshot))
            part = self._policy.decide(asked, self.memory, self._rng)
            self.memory = part.memory
            self._ledger.accept(asked.by_id, part)

    def _ask(self, jobs: Sequence[JobView], capacity: Capacity) -> Decision:
        """What it would decide, without any consequence."""
        return self._policy.decide(self._asked(jobs, capacity), self.memory, self._rng)

    def _asked(self, jobs: Sequence[JobView], capacity: Capacity) -> Snapshot:
        by_id = self._snapshot.by_id
        served = (*self._snapshot.served, *(by_id[job] for job in self._ledger.grants if job in by_id))
        return self._snapshot.restricted(tuple(jobs), capacity, served)


def _keep_what_must_be_kept(snapshot: Snapshot, jobs: Jobs, ledger: Ledger, targets: Targets) -> Jobs:
    """Write down the jobs that are left alone; the others. While jobs are on their way to what a plan of a moment ago
    gave them, the rest of that plan stands too: it left the others as they are."""
    min_run_s = snapshot.options.min_run_s
    settled_s = snapshot.now_s - min_run_s
    planned_s = targets.at_s if targets.held and targets.at_s >= settled_s else None
    not_ready = [node for node in snapshot.nodes if node.condition is not NodeCondition.READY]
    cordoned = {node.name for node in not_ready if node.condition is NodeCondition.CORDONED}
    gone = {node.name for node in not_ready}
    top_waiting: int | None = None
    kept: dict[JobId, None] = {}
    for job in [job for job in sorted(snapshot.holding, key=_id) if not job.stopping]:
        why: Reason | None = None
        if job.pinned:
            why = Reason(code=ReasonCode.PINNED)
        elif cordoned and job.allocation and not cordoned.isdisjoint(job.allocation.nodes):
            pass
        elif job.id in targets.places:
            continue
        elif job.settled_at_s(min_run_s) > snapshot.now_s or planned_s is not None:
            if top_waiting is None:
                top_waiting = _top_waiting(jobs)
            if top_waiting > job.priority:
                continue
            until_s = max(job.settled_at_s(min_run_s), (planned_s or 0.0) + min_run_s)
            why = Reason(code=ReasonCode.SETTLING, detail={"until_s": until_s})
            ledger.wake_at(until_s)
        else:
            continue
        ledger.keep(job, held_grant(job), _milli(job, gone), why)
        kept[job.id] = None
    return tuple(job for job in jobs if job.id not in kept) if kept else jobs


def _keep_to_targets(snapshot: Snapshot, jobs: Jobs, ledger: Ledger, targets: Targets) -> dict[JobId, None]:
    """Jobs on their way to what an earlier pass gave them keep to that, or those who were stopped for it were stopped
    for nothing. It is decided anew if a job of higher priority waits, or if what it is to have is no longer there."""
    if not targets.places:
        return {}
    by_id = {job.id: job for job in jobs}
    top_waiting = _top_waiting(jobs)
    usable = {node.name: {gpu.index for gpu in node.usable_gpus()} for node in snapshot.nodes if node.schedulable}
    bound: dict[JobId, None] = {}
    for job_id, target in targets.places.items():
        job = by_id.get(job_id)
        there = all(usable.get(part.node, set()).issuperset(part.gpus) for part in target.parts)
        if job is None or not there or top_waiting > job.priority:
            continue
        if ledger.may_use(job, target.n) and ledger.give(job, grant(target.n, target.gpu_type)):
            bound[job_id] = None
    return bound


def _leave_out_stopped(snapshot: Snapshot, jobs: Jobs, ledger: Ledger, keep: Targets) -> dict[JobId, None]:
    """Jobs that were stopped a moment ago to make room for others do not come back before that plan is carried out."""
    until_s = keep.at_s + snapshot.options.min_run_s
    if until_s < snapshot.now_s:
        return {}
    top_waiting = _top_waiting(jobs) if keep.held else _LOWEST
    left_out = [job for job in jobs if job.id in keep.held and job.id not in keep.places]
    found = {job.id: None for job in left_out if not job.held_n and job.priority >= top_waiting}
    for job in found:
        ledger.reasons[job] = (Reason(code=ReasonCode.SETTLING, detail={"until_s": until_s}),)
        ledger.wake_at(until_s)
    return found


_LOWEST = -(1 << 62)
"""Below every priority: no job waits."""


def _top_waiting(jobs: Jobs) -> int:
    """Priority of the most important job that waits; at most that of all, where all have the same."""
    if len(priorities := set(map(_priority, jobs))) == 1:
        return priorities.pop()
    return max((job.priority for job in jobs if not job.held_n), default=_LOWEST)


def _milli(job: JobView, gone: set[str]) -> int:
    """How much of what the job holds is on nodes whose GPUs are there to give."""
    if not gone or job.allocation is None:
        return job.held_n * job.gpu_milli
    return job.gpu_milli * sum(len(part.gpus) for part in job.allocation.parts if part.node not in gone)


def _classes(jobs: Jobs) -> list[Jobs]:
    """By priority, highest first."""
    priorities = sorted(set(map(_priority, jobs)), reverse=True)
    if len(priorities) == 1:
        return [jobs]
    return [tuple(job for job in jobs if job.priority == priority) for priority in priorities]


def _explained(snapshot: Snapshot, jobs: Jobs, ledger: Ledger, within: caps.Within) -> Reasons:
    """The reasons so far; and for jobs without a grant whether they can never run here, or not now."""
    capacity = snapshot.capacity.gpu_milli
    grants, reasons = ledger.grants, ledger.said()
    for job in [job for job in jobs if job.id not in grants]:
        types, needs = job.gpu_types, job.sizes[0] * job.gpu_milli
        if needs > (capacity.get(types[0], 0) if types else 0) and needs > (most := _most(capacity, types)):
            reasons[job.id] = (_never(job, most),)
        elif (capped := within.why_not(job)) is not None:
            reasons[job.id] = (capped,)
        elif not reasons.get(job.id):
            reasons[job.id] = ledger.purse.no_room(job, job.sizes[0])
    return reasons


def _most(capacity: Mapping[str, int], types: tuple[str, ...]) -> int:
    return max((capacity.get(gpu_type, 0) for gpu_type in types), default=0)


def _never(job: JobView, most: int) -> Reason:
    if not most:
        accepts = ", ".join(job.spec.gpus.types)
        return Reason(code=ReasonCode.GPU_TYPE, detail={"accepts": accepts} if accepts else {})
    return Reason(code=ReasonCode.SHAPE, detail={"needs": job.sizes[0], "largest": most // GPU_MILLI})


def _without_ended(memory: Memory, jobs: Jobs) -> Memory:
    """Forget what was remembered of jobs that are gone; the same object when there is nothing to forget."""
    known = memory.get("jobs")
    if not known or not isinstance(known, Mapping):
        return memory
    present = {str(job.id) for job in jobs}
    if all(job in present for job in known):
        return memory
    return {**memory, "jobs": {job: entry for job, entry in known.items() if job in present}}
