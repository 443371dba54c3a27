"""Dominant resource fairness over GPUs, CPUs and memory, among teams and then among a team's jobs.

Repeatedly, the team with the smallest dominant share, and in it the job with the smallest one (by weight), gets one
bundle more: its minimum first, then the step to its next size that is faster, with the CPUs and memory that go with
it. A job whose bundle no longer fits is done. Ties: earlier submission. O(jobs log jobs + GPUs log jobs). (Ghodsi et
al., Dominant resource fairness: Fair allocation of multiple resource types, NSDI 2011.)
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from swell.core.capacity import processes_of
from swell.core.decision import Decision, Grant
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import Capacity, JobView, Snapshot
from swell.policy.base import Memory, OwnReasons, grant, ladder
from swell.policy.bundles import Stock
from swell.policy.options import NO_OPTIONS
from swell.ports import Random

Share = tuple[float, float, float]


class Drf:
    name = "drf"
    elastic = True
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        filling = _Filling(snapshot)
        filling.run()
        return Decision(grants=filling.grants, reasons=filling.reasons, memory=memory)


class _Team:
    """A team's jobs in a heap of (share by weight, place), and what the team uses."""

    __slots__ = ("heap", "name", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.heap: list[tuple[float, int, JobView]] = []
        self.used: Share = (0.0, 0.0, 0.0)


class _Filling:
    def __init__(self, snapshot: Snapshot) -> None:
        self.stock = Stock(snapshot.capacity)
        self.grants: dict[JobId, Grant] = {}
        self.reasons: OwnReasons = {}
        self._unit = _unit(snapshot.capacity)
        teams: dict[str, _Team] = {}
        for place, job in enumerate(snapshot.jobs):
            team = teams.get(job.team)
            if team is None:
                team = teams[job.team] = _Team(job.team)
            team.heap.append((0.0, place, job))
        self._teams = [(0.0, team.heap[0][1], team) for team in teams.values()]
        heapify(self._teams)

    def run(self) -> None:
        while self._teams:
            _, first, team = self._teams[0]
            if self._serve(team):
                heapreplace(self._teams, (max(team.used), first, team))
            else:
                heappop(self._teams)

    def _serve(self, team: _Team) -> bool:
        """One bundle to the team's neediest job that can take one; False when there is none."""
        while team.heap:
            _, place, job = team.heap[0]
            given = self._give(job)
            if given is None:
                heappop(team.heap)
                continue
            before = self.grants.get(job.id)
            self.grants[job.id] = given
            team.used = self._more(team.used, job, before.n if before else 0, given.n)
            own = max(self._more((0.0, 0.0, 0.0), job, 0, given.n))
            heapreplace(team.heap, (own / max(job.weight, 1e-9), place, job))
            return True
        return False

    def _give(self, job: JobView) -> Grant | None:
        """Take the job's next bundle out of the stock, if there is one and it fits."""
        given = self.grants.get(job.id)
        if given is None:
            first = self.stock.admit(job, job.sizes[0])
            if first is None:
                self.reasons[job.id] = self.stock.no_room(job, job.sizes[0])
            return first
        if given.n >= job.sizes[-1]:
            return None
        rungs = ladder(job, given.gpu_type)
        index = rungs.above(given.n)
        if index == len(rungs.sizes) or not self.stock.grow(job, given, rungs.sizes[index]):
            return None
        return grant(rungs.sizes[index], given.gpu_type)

    def _more(self, share: Share, job: JobView, before: int, n: int) -> Share:
        count = processes_of(job.spec, n) - (processes_of(job.spec, before) if before else 0)
        gpu, cpu, memory = self._unit
        return (
            share[0] + (n - before) * job.gpu_milli * gpu,
            share[1] + count * job.spec.cpus * cpu,
            share[2] + count * job.spec.memory_mib * memory,
        )


def _unit(capacity: Capacity) -> Share:
    """The share that a thousandth of a GPU, a CPU, a MiB is of all there is."""
    total = sum(capacity.gpu_milli.values()) or GPU_MILLI
    cpus, memory_mib = capacity.cpus, capacity.memory_mib
    return 1.0 / total, 1.0 / cpus if cpus else 0.0, 1.0 / memory_mib if memory_mib else 0.0
