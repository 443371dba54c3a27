"""Budgets of GPU hours per calendar month: a layer before every policy.

A team that has used up its hours gets no GPUs until the next month: its waiting jobs wait, and its running ones are
stopped at a checkpoint. A run that may not be stopped goes on to its end, and what it uses counts. Jobs without GPUs
are not touched. O(jobs), and nothing where no budget is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from swell.core.budgets import month_start_s, next_month_s
from swell.core.decision import Detail, Reason, ReasonCode
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView, Snapshot
from swell.policy.ledger import Ledger

Jobs = tuple[JobView, ...]
HOUR_S = 3600.0


def within(snapshot: Snapshot, jobs: Jobs, ledger: Ledger) -> Jobs:
    """Those of the jobs that their team has hours for; the others get a reason."""
    budgets = snapshot.options.budgets
    if not budgets:
        return jobs
    left_s = {team: hours * HOUR_S - snapshot.month_gpu_s.get(team, 0.0) for team, hours in budgets.items()}
    _wake(snapshot, left_s, ledger)
    allowed: list[JobView] = []
    for job in jobs:
        if job.team not in left_s or not job.gpu_milli:
            allowed.append(job)
        elif left_s[job.team] > 0.0:
            allowed.append(_waiting_this_month(job, snapshot.now_s))
        else:
            ledger.reasons[job.id] = (_used_up(job, snapshot),)
    return tuple(allowed)


def _wake(snapshot: Snapshot, left_s: Mapping[str, float], ledger: Ledger) -> None:
    """Decide again when a team's hours are used up, and when new ones come."""
    held = dict.fromkeys(left_s, 0)
    for job in snapshot.holding:
        if job.team in held:
            held[job.team] += job.held_n * job.gpu_milli
    for team, left in left_s.items():
        if left <= 0.0:
            ledger.wake_at(next_month_s(snapshot.now_s))
        elif held[team]:
            ledger.wake_at(snapshot.now_s + left * GPU_MILLI / held[team])


def _waiting_this_month(job: JobView, now_s: float) -> JobView:
    """A wait without budget is not starvation: the guard counts only the wait since the month began."""
    month_s = month_start_s(now_s)
    if job.waiting_since_s is None or job.waiting_since_s >= month_s:
        return job
    return replace(job, waiting_since_s=month_s)


def _used_up(job: JobView, snapshot: Snapshot) -> Reason:
    detail: dict[str, Detail] = {
        "team": job.team,
        "budget": snapshot.options.budgets[job.team],
        "used": round(snapshot.month_gpu_s.get(job.team, 0.0) / HOUR_S, 1),
        "until_s": next_month_s(snapshot.now_s),
    }
    return Reason(code=ReasonCode.BUDGET, detail=detail)
