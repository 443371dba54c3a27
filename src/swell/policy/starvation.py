"""Nobody starves: a job passed over longer than `starvation_s` goes ahead of its order, inside its priority class.

The longest waiting one first, each gets its minimum (what it asks for, if the policy is not elastic) before the policy
decides about the others. Once it runs it keeps that for a quarter of `starvation_s`, whatever the policy says, so that
it gets on: at worst a job runs a fifth of the time. `memory["rescued"]` holds until when, by job id.

A starving job may be too large for what jobs that cannot be stopped leave. Then, on the GPU type it waits for, no
further such job is started until it fits; jobs that can be stopped use the GPUs meanwhile. O(jobs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from swell.core.decision import Reason, ReasonCode
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, grant
from swell.policy.ledger import Ledger
from swell.policy.resizing import held_grant

SLICE = 0.25
"""Of `starvation_s`: how long a job that starved keeps what it got."""


class Guard:
    def __init__(self, snapshot: Snapshot, memory: Memory, *, elastic: bool) -> None:
        self._snapshot = snapshot
        self._elastic = elastic
        rescued = memory.get("rescued")
        self._before: Mapping[str, float] = rescued if isinstance(rescued, Mapping) else {}
        self._rescued: dict[str, float] = {}
        self._reserved: dict[str, JobView] = {}  # by GPU type: who waits for it

    def serve(self, jobs: Sequence[JobView], ledger: Ledger) -> tuple[list[JobView], list[JobView]]:
        """Give starving jobs of a class what they need. The jobs that the policy is to decide about, and those that
        were served here."""
        now_s, bound_s = self._snapshot.now_s, self._snapshot.options.starvation_s
        since_s = now_s - bound_s
        starving: list[tuple[float, int, JobView]] = []
        others: list[JobView] = []
        served: list[JobView] = []
        for job in jobs:
            if job.waiting_since_s is not None:
                if job.waiting_since_s < since_s and not job.held_n:
                    starving.append((job.waiting_since_s, job.id, job))
                    continue
            elif self._before and self._still_rescued(job, now_s) and ledger.give(job, held_grant(job)):
                served.append(job)
                continue
            others.append(job)
        for _, _, job in sorted(starving, key=lambda entry: entry[:2]):
            (served if self._rescue(job, ledger, now_s, bound_s) else others).append(job)
        others = self._without_those_that_block(others, ledger) if self._reserved else others
        return (sorted(others, key=_by_submission) if starving else others), served

    def memory(self, memory: Memory) -> Memory:
        """The same object when nobody was rescued, before or now."""
        if self._rescued == self._before:
            return memory
        return {**memory, "rescued": self._rescued}

    def _still_rescued(self, job: JobView, now_s: float) -> bool:
        until_s = self._before.get(str(job.id), 0.0)
        if until_s <= now_s or job.stopping:
            return False
        self._rescued[str(job.id)] = until_s
        return True

    def _rescue(self, job: JobView, ledger: Ledger, now_s: float, bound_s: float) -> bool:
        n = job.sizes[0] if self._elastic else job.requested
        gpu_type = ledger.purse.best_type(job, n)
        if gpu_type is None:
            self._reserve(job, n)
            return False
        if not ledger.may_use(job, n) or not ledger.give(job, grant(n, gpu_type)):
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

    def _without_those_that_block(self, jobs: list[JobView], ledger: Ledger) -> list[JobView]:
        """Waiting jobs that could not be stopped again stay off the GPU types a starving job waits for."""
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


def _by_submission(job: JobView) -> tuple[float, int]:
    return job.submitted_s, job.id
