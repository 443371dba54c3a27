"""The policy itself: what `policy.registry` makes and `policy.layers` asks. Holds nothing but a cache."""

from __future__ import annotations

from swell.core.decision import Decision, Grant
from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, apart, grant, speed_at
from swell.policy.swell.columns import Reader
from swell.policy.swell.settings import OPTIONS, settings_of
from swell.policy.swell.vectorised import Round
from swell.ports import Random


class Swell:
    name = "swell"
    elastic = True
    weighs_restarts = True
    OPTIONS = OPTIONS

    def __init__(self) -> None:
        self._reader = Reader()

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        grants, jobs = apart(snapshot)
        for_all = _enough_for_all(jobs, snapshot)
        if for_all is not None:
            return Decision(grants=grants | for_all, memory=memory)
        columns = self._reader.read(jobs, snapshot) if jobs else None
        if columns is None:  # no GPU is left, which the layers explain to everybody
            return Decision(grants=grants, memory=memory)
        this = Round(jobs, columns, snapshot.now_s, settings_of(snapshot))
        this.give()
        this.use_leftovers()
        return Decision(grants=grants | this.grants(), explain=this.reasons, memory=memory)


def _enough_for_all(jobs: list[JobView], snapshot: Snapshot) -> dict[JobId, Grant] | None:
    """The only size each job wants, where there is room for all of them on the one type there is; else None. Nothing is
    to be weighed then, and most hours of a cluster of jobs that do not scale are like that."""
    capacity = snapshot.capacity.gpu_milli
    if len(capacity) != 1:
        return None
    gpu_type, left = next(iter(capacity.items()))
    for job in jobs:
        n = job.sizes[-1]
        left -= n * job.gpu_milli
        keeps = job.held_n == n and job.restart_cost_s > 0 and not job.stopping  # else a smaller one may do
        settled = len(job.sizes) == 1 or keeps
        if left < 0 or not settled or gpu_type not in job.gpu_types:
            return None
    return {job.id: grant(job.sizes[-1], gpu_type) for job in jobs if speed_at(job, job.sizes[-1], gpu_type) > 0.0}
