"""Max-min fairness over GPU types: Gavel's heterogeneity-aware least attained service, not elastic.

A linear program gives each job the part of its time x[type] it should spend on each GPU type, with the size it asks
for: maximise the smallest of (speed its time brings) / (speed of an equal share of the cluster) over jobs, each divided
by its weight, and a little of the sum, so that nothing is left that hurts nobody. Then, each time, jobs are served in
order of x[type] / (part of the time they have had on that type), those that have had least of what they should first.
The program is solved anew when jobs come or go. (Narayanan et al., OSDI 2020.)

Variables: jobs × types + 1; HiGHS, time-capped (equal shares if there is no answer by then). Rounds: O(jobs log jobs).
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

import numpy as np

from swell.core.decision import Decision
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView, Snapshot
from swell.policy import options as opts
from swell.policy._highs import Program, highs, solve
from swell.policy.base import Memory, OwnReasons, Purse, apart, grant, speed_at
from swell.ports import Random

OPTIONS: opts.Options = {
    "time_limit_s": opts.Option(default=4.0, low=0.01, high=60, doc="for the solver; equal shares if it finds nothing"),
}
_LITTLE = 1e-3
Entry = dict[str, float]
"""What is remembered of a job: `want:TYPE`, its part of the time there, and `had:TYPE`, seconds it had."""


class MaxMin:
    name = "max-min"
    elastic = False
    weighs_restarts = False
    OPTIONS = OPTIONS

    def __init__(self) -> None:
        self._highs = highs(self.name)

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        grants, jobs = apart(snapshot)
        entries = _with_time_had(jobs, memory, snapshot.now_s)
        mark = _mark(jobs, snapshot)
        if memory.get("solved") != mark:
            self._aim(jobs, entries, snapshot)
        purse = Purse(snapshot.capacity)
        for job, gpu_type in _in_order_of_need(jobs, entries, snapshot):
            if job.id not in grants and purse.fits(job, job.requested, gpu_type):
                purse.take(job, job.requested, gpu_type)
                grants[job.id] = grant(job.requested, gpu_type)
        reasons: OwnReasons = {job.id: purse.no_room(job, job.requested) for job in jobs if job.id not in grants}
        kept = {str(job): entry for job, entry in entries.items()}
        return Decision(
            grants=grants,
            reasons=reasons,
            memory={**memory, "jobs": {**_jobs(memory), **kept}, "solved": mark, "at_s": snapshot.now_s},
        )

    def _aim(self, jobs: list[JobView], entries: dict[JobId, Entry], snapshot: Snapshot) -> None:
        """Write into the entries what part of its time each job should have on each type."""
        pairs = [(row, t) for row, job in enumerate(jobs) for t in _types(job, snapshot)]
        if not pairs:
            return
        x = solve(self._highs, _program(jobs, pairs, snapshot), opts.number(snapshot, OPTIONS, "time_limit_s"))
        for index, (row, gpu_type) in enumerate(pairs):
            share = 1.0 / len(_types(jobs[row], snapshot)) if x is None else float(x[index])
            entries[jobs[row].id][f"want:{gpu_type}"] = share


def _program(jobs: list[JobView], pairs: list[tuple[int, str]], snapshot: Snapshot) -> Program:
    """Variables: the share of each (job, type), then the smallest of the normalised speeds."""
    speeds = [_normalised(jobs[row], t, snapshot) for row, t in pairs]
    floor = len(pairs)
    own: list[list[int]] = [[] for _ in jobs]
    for index, (row, _) in enumerate(pairs):
        own[row].append(index)
    rows: list[tuple[list[int], list[float]]] = [(at, [1.0] * len(at)) for at in own]
    limits = [1.0] * len(jobs)
    for gpu_type, milli in snapshot.capacity.gpu_milli.items():
        at = [index for index, (_, t) in enumerate(pairs) if t == gpu_type]
        rows.append((at, [float(_milli(jobs[pairs[index][0]])) for index in at]))
        limits.append(float(milli))
    for at in own:
        if at:
            rows.append(([*at, floor], [*(-speeds[index] for index in at), 1.0]))
            limits.append(0.0)
    gain = np.array([_LITTLE * speed / len(jobs) for speed in speeds] + [1.0])
    upper = np.concatenate([np.ones(floor), [np.inf]])
    return Program(gain=gain, upper=upper, rows=rows, limits=limits, whole=False)


def _normalised(job: JobView, gpu_type: str, snapshot: Snapshot) -> float:
    """Its speed on this type over that of an equal share of the cluster, by weight and by the GPUs it asks for."""
    speed = speed_at(job, job.requested, gpu_type)
    total = sum(snapshot.capacity.gpu_milli.get(t, 0) for t in job.gpu_types) or 1
    equal = sum(speed_at(job, job.requested, t) * snapshot.capacity.gpu_milli.get(t, 0) / total for t in job.gpu_types)
    return speed / max(equal, 1e-9) * job.requested / max(job.weight, 1e-6)


def _milli(job: JobView) -> int:
    return job.requested * job.gpu_milli


def _types(job: JobView, snapshot: Snapshot) -> list[str]:
    """Types with room for it at all."""
    return [t for t in job.gpu_types if 0 < _milli(job) <= snapshot.capacity.gpu_milli.get(t, 0)]


def _mark(jobs: list[JobView], snapshot: Snapshot) -> int:
    """Changes when jobs come or go, or GPUs do."""
    text = ",".join(str(job.id) for job in jobs) + repr(dict(snapshot.capacity.gpu_milli))
    return crc32(text.encode())


def _jobs(memory: Memory) -> Mapping[str, object]:
    known = memory.get("jobs")
    return known if isinstance(known, Mapping) else {}


def _with_time_had(jobs: list[JobView], memory: Memory, now_s: float) -> dict[JobId, Entry]:
    before_s = memory.get("at_s")
    passed_s = max(0.0, now_s - before_s) if isinstance(before_s, int | float) else 0.0
    known = _jobs(memory)
    entries: dict[JobId, Entry] = {}
    for job in jobs:
        found = known.get(str(job.id))
        entry: Entry = dict(found) if isinstance(found, Mapping) else {}
        if job.held_n and job.allocation is not None:
            had = f"had:{job.allocation.gpu_type}"
            entry[had] = entry.get(had, 0.0) + passed_s * job.held_n * job.gpu_milli / GPU_MILLI
        entries[job.id] = entry
    return entries


def _in_order_of_need(
    jobs: list[JobView], entries: dict[JobId, Entry], snapshot: Snapshot
) -> list[tuple[JobView, str]]:
    """(job, type) by what it should have over what it had; then what it holds, so that equals do not swap places."""
    keyed = []
    for place, job in enumerate(jobs):
        entry = entries[job.id]
        age_s = max(1.0, snapshot.now_s - job.submitted_s)
        for gpu_type in _types(job, snapshot):
            want = entry.get(f"want:{gpu_type}", 0.0)
            had = entry.get(f"had:{gpu_type}", 0.0) / (age_s * job.requested)
            holds = job.allocation is not None and job.allocation.gpu_type == gpu_type and job.held_n > 0
            keyed.append((-want / (had + 1e-3), not holds, place, gpu_type, job))
    return [(job, gpu_type) for *_, gpu_type, job in sorted(keyed, key=lambda key: key[:4])]
