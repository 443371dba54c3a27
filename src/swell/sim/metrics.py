"""What came out of a simulation: one row per job, and a summary.

Finish-time fairness ρ of a job is its completion time over the time it would have taken alone on its fair share: 1/N of
the GPUs of each type, N the mean number of jobs in the system (waiting or running) between its submission and its end.
ρ ≤ 1 means that sharing the cluster cost it nothing (Themis, NSDI'20; the isolated run as in Sia, SOSP'23). Alone, too,
it would have waited for the next round of decisions and paid for its start.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from swell.core.events import EpochEnded, Event, JobSubmitted, RunEnded, RunPlanned, RunResized
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.state import JobRecord, State
from swell.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    workload: str
    policy: str
    job: JobId
    name: str
    family: str
    state: str
    submitted_s: float
    started_s: float | None
    ended_s: float
    jct_s: float
    restarts: int
    resizes: int
    preemptions: int
    migrations: int
    gpu_s: float
    lost_gpu_s: float = 0.0  # of those, work that ends of runs threw away
    rho: float


@dataclass(slots=True)
class Recorder:
    """Watches a simulation: who holds how many GPUs since when, and who ended how."""

    world: World
    share: Mapping[str, int]  # GPUs by type, all of the cluster
    interval_s: float = 0.0  # of decisions
    first_job: int = 0  # added to ids, where several simulations are put together
    held: list[tuple[float, JobId, int]] = field(default_factory=list)  # (time, job, GPUs from then on)
    active: list[tuple[float, int]] = field(default_factory=list)  # (time, jobs in the system from then on)
    ended: list[JobRecord] = field(default_factory=list)
    lost_gpu_s: dict[JobId, float] = field(default_factory=dict)  # by job
    _area: list[float] = field(default_factory=list)  # job-seconds up to each entry of `active`

    def __call__(self, state: State, event: Event) -> None:
        if type(event) is EpochEnded:
            return  # nine in ten events
        if isinstance(event, JobSubmitted):
            self._count(event.at_s, len(state.active))
        elif isinstance(event, RunPlanned | RunResized):
            self.held.append((event.at_s, self.first_job + event.run.job, event.allocation.gpus))
        elif isinstance(event, RunEnded):
            self.held.append((event.at_s, self.first_job + event.run.job, 0))
            job = state.jobs[event.run.job]
            if job.run is not None and job.run.lost_s:
                lost = self.lost_gpu_s.get(job.id, 0.0)
                self.lost_gpu_s[job.id] = lost + job.run.lost_s * job.run.allocation.gpu_milli / GPU_MILLI
            if job.ended:
                self._count(event.at_s, len(state.active))
                self.ended.append(job)

    def _count(self, at_s: float, jobs: int) -> None:
        area = 0.0
        if self.active:
            last_s, last = self.active[-1]
            area = self._area[-1] + last * (at_s - last_s)
        self.active.append((at_s, jobs))
        self._area.append(area)

    def contention(self, start_s: float, end_s: float) -> float:
        """Mean number of jobs in the system."""
        if end_s <= start_s:
            return 1.0
        return max(1.0, (self._area_at(end_s) - self._area_at(start_s)) / (end_s - start_s))

    def _area_at(self, at_s: float) -> float:
        index = bisect.bisect_right(self.active, (at_s, 1 << 60)) - 1
        if index < 0:
            return 0.0
        since_s, jobs = self.active[index]
        return self._area[index] + jobs * (at_s - since_s)

    def rows(self, workload: str, policy: str) -> list[JobRow]:
        return [self._row(job, workload, policy) for job in sorted(self.ended, key=lambda job: job.id)]

    def _row(self, job: JobRecord, workload: str, policy: str) -> JobRow:
        assert job.ended_s is not None  # only ended jobs are kept
        jct_s = job.ended_s - job.submitted_s
        jobs = self.contention(job.submitted_s, job.ended_s)
        share = {gpu_type: n / jobs for gpu_type, n in self.share.items()}
        round_s = -job.submitted_s % self.interval_s if self.interval_s else 0.0
        fair_s = round_s + self.world.fair_s(job, share)
        return JobRow(
            workload=workload,
            policy=policy,
            job=self.first_job + job.id,
            name=job.spec.name,
            family=job.spec.family,
            state=str(job.state),
            submitted_s=job.submitted_s,
            started_s=job.first_started_s,
            ended_s=job.ended_s,
            jct_s=jct_s,
            restarts=max(0, job.attempts - 1),
            resizes=job.resizes,
            preemptions=job.preemptions,
            migrations=job.migrations,
            gpu_s=job.gpu_s,
            lost_gpu_s=self.lost_gpu_s.get(job.id, 0.0),
            rho=jct_s / fair_s if fair_s > 0 else 0.0,
        )


def summary(rows: Sequence[JobRow], batch: str) -> dict[str, object]:
    """Figures of one simulation. Times in seconds."""
    if not rows:
        return {"jobs": 0, "batch": batch}
    jct = np.array([row.jct_s for row in rows])
    rho = np.array([row.rho for row in rows])
    waits = [row.started_s - row.submitted_s for row in rows if row.started_s is not None]
    return {
        "workload": rows[0].workload,
        "policy": rows[0].policy,
        "batch": batch,
        "jobs": len(rows),
        "mean_jct_s": _r(jct.mean()),
        "median_jct_s": _r(np.median(jct)),
        "p99_jct_s": _r(np.percentile(jct, 99)),
        "makespan_s": _r(max(row.ended_s for row in rows) - min(row.submitted_s for row in rows)),
        "mean_wait_s": _r(np.mean(waits)),
        "restarts_per_job": _r(np.mean([row.restarts for row in rows])),
        "gpu_hours_per_job": _r(np.mean([row.gpu_s for row in rows]) / 3600),
        "lost_gpu_hours": _r(sum(row.lost_gpu_s for row in rows) / 3600),
        "mean_rho": _r(rho.mean()),
        "worst_rho": _r(rho.max()),
        "rho_above_1": _r((rho > 1).mean()),
        "not_completed": sum(row.state != "completed" for row in rows),
    }


def utilisation(rows: Sequence[JobRow], gpus: int) -> float:
    """The part of the GPUs' time, from the first submission to the last end, in which jobs ran on them."""
    if not rows or not gpus:
        return 0.0
    there_s = gpus * (max(row.ended_s for row in rows) - min(row.submitted_s for row in rows))
    return _r(min(1.0, sum(row.gpu_s for row in rows) / there_s)) if there_s > 0 else 0.0


def _r(value: float | np.floating) -> float:
    return round(float(value), 4)
