"""GPU hours that teams have used in a calendar month (UTC). Pure.

`core.lifecycle` charges each run to its team when it ends or is resized; `plan.snapshotter` adds what runs have used
since, and `policy.budgets` holds back teams that have used up their `options.budgets`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from swell.core.state import Run, State, team_of


def month_start_s(at_s: float) -> float:
    """When the calendar month of `at_s` began."""
    return _month(at_s).timestamp()


def next_month_s(at_s: float) -> float:
    """When the next calendar month begins."""
    begin = _month(at_s)
    return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1).timestamp()


def _month(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def service_s(run: Run, until_s: float, from_s: float = 0.0) -> float:
    """GPU-seconds of the run since its allocation last changed, but only from `from_s` on."""
    since_s = max(run.changed_s, run.started_s if run.started_s is not None else run.planned_s, from_s)
    return max(0.0, until_s - since_s) * run.allocation.gpu_milli / 1000


def charge(state: State, team: str, run: Run, until_s: float) -> None:
    """Add what a run has used since its allocation last changed to what its team has used this month."""
    month_s = month_start_s(until_s)
    if month_s > state.month_s:
        state.month_s, state.month_gpu_s = month_s, {}
    if used_s := service_s(run, until_s, state.month_s):
        state.month_gpu_s[team] = state.month_gpu_s.get(team, 0.0) + used_s


def used_gpu_s(state: State, teams: Collection[str], now_s: float) -> dict[str, float]:
    """GPU-seconds of each of these teams in the month of `now_s`, with what their runs have used up to then."""
    month_s = month_start_s(now_s)
    used = {team: state.month_gpu_s.get(team, 0.0) if state.month_s == month_s else 0.0 for team in teams}
    for job in state.active:
        record = state.jobs[job]
        if record.holding and record.run is not None and (team := team_of(record.spec)) in used:
            used[team] += service_s(record.run, now_s, month_s)
    return used
