"""Prevents starvation: a job passed over longer than `starvation_s` goes ahead of its order, inside its priority class.

The longest waiting one first, each gets its minimum (what it asks for, if the policy is not elastic) before the policy
decides about the others. Once it runs it keeps that for a quarter of `starvation_s`, whatever the policy says, so that
it gets on: at worst a job runs a fifth of the time. `memory["rescued"]` holds until when, by job id.

A starving job may be too large for what jobs that cannot be stopped leave. Then, on the GPU type it waits for, no
further such job is started until it fits; jobs that can be stopped use the GPUs meanwhile. O(jobs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from swell.core.decision import Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, grant
from swell.policy.ledger import Ledger
from swell.policy.resizing import held_grant

_longest_first = attrgetter("waiting_since_s", "id")
SLICE = 0.25
"""Of `starvation_s`: how long a job that starved keeps what it got."""


class Guard:
    def __init__(self, snapshot: Snapshot, memory: Memory, *, elastic: bool, bound: Mapping[JobId, None]) -> None:
        """`bound`: jobs on their way to what they were given; one that was rescued stays so."""
        self._snapshot = snapshot
        self._elastic = elastic
        rescued = memory.get("rescued")
        self._before: Mapping[str, float] = rescued if isinstance(rescued, Mapping) else {}
        kept = [str(job) for job in bound if self._before.get(str(job), 0.0) > snapshot.now_s]
        self._rescued: dict[str, float] = {job: self._before[job] for job in kept}
        self._reserved: dict[str, JobView] = {}  # by GPU type: who waits for it

    def serve(self, jobs: Sequence[JobView], ledger: Ledger) -> tuple[Sequence[JobView], list[JobView]]:
        """Give starving jobs of a class what they need. The jobs that the policy is to decide about, in the order
        they came in, and those that were served here."""
        now_s, bound_s = self._snapshot.now_s, self._snapshot.options.starvation_s
        since_s = now_s - bound_s
        starving = [job for job in jobs if (w := job.waiting_since_s) is not None and w < since_s and not job.held_n]
        served = self._keep_rescued(jobs, ledger, now_s) if self._before else []
        hopeless: dict[tuple[int, tuple[str, ...]], None] = {}  # thousands who wait must not all look for themselves
        for job in sorted(starving, key=_longest_first):
            n = job.sizes[0] if self._elastic else job.requested
            if (n * job.gpu_milli, job.gpu_types) in hopeless:
                continue
            if ledger.purse.best_type(job, n) is None:
                self._reserve(job, n)
                if len(job.gpu_types) < 2:  # with several it also depends on how fast the job is on each
                    hopeless[n * job.gpu_milli, job.gpu_types] = None
            elif self._rescue(job, n, ledger, now_s, bound_s):
                served.append(job)
        others = jobs
        if served:
            done = dict.fromkeys(job.id for job in served)
            others = [job for job in jobs if job.id not in done]
        return (self._without_those_that_block(others, ledger) if self._reserved else others), served

    def _keep_rescued(self, jobs: Sequence[JobView], ledger: Ledger, now_s: float) -> list[JobView]:
        held = [job for job in jobs if job.waiting_since_s is None]
        return [job for job in held if self._still_rescued(job, now_s) and ledger.give(job, held_grant(job))]

    def memory(self, memory: Memory) -> Memory:
        """The same object when no job was rescued, before or now."""
        if self._rescued == self._before:
            return memory
        return {**memory, "rescued": self._rescued}

    def _still_rescued(self, job: JobView, now_s: float) -> bool:
        until_s = self._before.get(str(job.id), 0.0)
        if until_s <= now_s or job.stopping:
            return False
        self._rescued[str(job.id)] = until_s
        return True

    def _rescue(self, job: JobView, n: int, ledger: Ledger, now_s: float, bound_s: float) -> bool:
        gpu_type = ledger.purse.best_type(job, n)
        if gpu_type is None or not ledger.may_use(job, n) or not ledger.give(job, grant(n, gpu_type)):
            return False
        self._rescued[str(job.id)] = now_s + SLICE * bound_s
        waited_s = round(job.waiting_s(now_s), 1)
        ledger.reasons[job.id] = (Reason(code=ReasonCode.STARVED, detail={"waited_s": waited_s}),)
        return True

    def _reserve(self, job: JobView, n: int) -> None:
        capacity = self._snapshot.capacity.gpu_milli
        large_enough = [t for t in job.gpu_types if n * job.gpu_milli <= capacity.get(t, 0)]
        if large_enough:
            self._reserved.setdefault(large_enough[0], job)

    def _without_those_that_block(self, jobs: Sequence[JobView], ledger: Ledger) -> Sequence[JobView]:
        """Waiting jobs that could not be stopped again stay off the GPU types a starving job waits for."""
        if all(job.held_n or job.spec.may_be_stopped for job in jobs):
            return jobs
        allowed: list[JobView] = []
        for job in jobs:
            if job.held_n or job.spec.may_be_stopped or not job.gpu_milli:
                allowed.append(job)
                continue
            types = tuple(t for t in job.gpu_types if self._reserved.get(t, job) is job)
            if types == job.gpu_types:
                allowed.append(job)
            elif types:
                allowed.append(replace(job, gpu_types=types))
            else:
                ahead = self._reserved[job.gpu_types[0]].id
                ledger.reasons[job.id] = (Reason(code=ReasonCode.BEHIND, detail={"ahead": 1, "first": ahead}),)
        return allowed
