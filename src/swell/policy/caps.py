"""Caps on what jobs of one Kubernetes namespace may have together (`core.caps`): a layer around every policy.

A policy is asked with no more GPUs than the caps leave, so that its sizes suit them. It counts by GPU type and not by
namespace, though, and counts no pods: what it grants is cut back to the caps afterwards. Everybody keeps their smallest
size, or what they hold, before anybody grows; the more important first. O(jobs), and nothing where there is no cap.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from swell.core.caps import Left, largest_node, needs_of, under
from swell.core.decision import Reason
from swell.core.pods import runs_pods
from swell.core.resources import GPU_MILLI, Capped
from swell.core.snapshot import JobView, Snapshot, capacity_of
from swell.policy.base import grant
from swell.policy.ledger import Ledger

Jobs = tuple[JobView, ...]


def bounded(snapshot: Snapshot) -> Snapshot:
    """With no more GPUs of pods than they may have together; as it is if some jobs run in another namespace."""
    most = min((cap.most for cap in snapshot.caps if cap.what is Capped.GPUS), default=None)
    pods = [job for job in snapshot.jobs if job.spec.kubernetes is not None] if most is not None else []
    if most is None or not all(under(job.spec, cap) for job in pods for cap in snapshot.caps):
        return snapshot
    of_pods = capacity_of(tuple(node for node in snapshot.nodes if runs_pods(node))).gpu_milli
    whole = snapshot.capacity.gpu_milli
    less = {kind: max(0, milli - most * GPU_MILLI) for kind, milli in of_pods.items()}
    gpu_milli = {kind: milli - less.get(kind, 0) for kind, milli in whole.items()}
    return snapshot.restricted(snapshot.jobs, replace(snapshot.capacity, gpu_milli=gpu_milli))


class Within:
    """Keeps one decision within the caps. `left`: what no job has been given of them, once `cut` is done."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self._ledger = ledger
        self._caps = snapshot.caps
        self._largest = largest_node(snapshot.nodes) if snapshot.caps else 0
        self.left = Left(snapshot.caps)

    def possible(self, jobs: Jobs) -> Jobs:
        """Without those that wait and would exceed a cap if they were alone: nothing is to be kept free for them."""
        if not self._caps:
            return jobs
        alone = {job.id: why for job in jobs if not job.held_n and (why := self._short(job, job.sizes[0])) is not None}
        self._ledger.reasons.update((job, (why,)) for job, why in alone.items())
        return tuple(job for job in jobs if job.id not in alone)

    def cut(self, jobs: Jobs, fixed: Container[int]) -> bool:
        """Take back what is beyond the caps. Was there anything? `fixed`: jobs whose grant stands."""
        grants = self._ledger.grants
        granted = [job for job in jobs if job.id in grants and self.left.concerns(job.spec)] if self._caps else []
        granted.sort(key=lambda job: (job.id not in fixed, -job.priority, not job.held_n, job.id))
        wanted = {job.id: grants[job.id] for job in granted}
        sizes = {job.id: self._first(job, wanted[job.id].n, kept=job.id in fixed) for job in granted}
        changed = False
        for job in granted:
            n, given = sizes[job.id], wanted[job.id]
            if 0 < n < given.n:
                n = self._grown(job, n, given.n)
            if n == given.n:
                continue
            changed = True
            why = self._short(job, given.n if n else job.sizes[0])
            self._ledger.reasons[job.id] = (why,) if why else ()
            if n:
                self._ledger.change(job, grant(n, given.gpu_type))
            else:
                self._ledger.withdraw(job)
        return changed

    def why_not(self, job: JobView) -> Reason | None:
        """Why a job that was given nothing could not have its smallest size in any case."""
        return self._short(job, job.sizes[0])

    def _first(self, job: JobView, wanted: int, *, kept: bool) -> int:
        """Its smallest size, or what it holds, if the caps leave that; 0: they do not."""
        most = wanted if kept else min(wanted, job.held_n) if job.held_n else job.sizes[0]
        if kept:
            self._take(job, most)
            return most
        return self._largest_of(job, [size for size in job.sizes if size <= most] or [job.sizes[0]])

    def _grown(self, job: JobView, n: int, wanted: int) -> int:
        self._take(job, n, -1)
        return self._largest_of(job, [size for size in job.sizes if n <= size <= wanted] or [n])

    def _largest_of(self, job: JobView, sizes: Sequence[int]) -> int:
        for size in reversed(sizes):
            if self._short(job, size) is None:
                self._take(job, size)
                return size
        return 0

    def _short(self, job: JobView, n: int) -> Reason | None:
        if not self.left.concerns(job.spec):
            return None
        return self.left.short(job.spec, needs_of(job.spec, n, self._largest))

    def _take(self, job: JobView, n: int, sign: int = 1) -> None:
        self.left.take(job.spec, needs_of(job.spec, n, self._largest), sign)
