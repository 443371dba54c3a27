"""Team quotas with borrowing, inside a priority class.

A team's jobs that fit its quota (in the policy's own order) are entitled; the others borrow. Entitled jobs of all
teams are decided first, then, on what is left, those that borrow: what is borrowed is given back by the next decision
in which somebody entitled needs it. A team whose entitled jobs grew beyond its quota is cut back to it while an
entitled job of another team waits. A team that may not borrow is always held to its quota; a team without one is
entitled to all. O(jobs) and one more call of the policy for each team that asks for more than its quota.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swell.core.decision import Decision, Reason, ReasonCode
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import Capacity, JobView, Snapshot
from swell.policy.base import grant
from swell.policy.ledger import Ledger
from swell.policy.resizing import admit

Ask = Callable[[Sequence[JobView], Capacity], Decision]
"""Let the policy decide about these jobs with so much to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    entitled: list[JobView]
    borrowing: list[JobView]


def split(jobs: Sequence[JobView], ledger: Ledger, capacity: Capacity, ask: Ask, *, elastic: bool) -> Split:
    """Who is within the quota of their team. Jobs that may not borrow and do not fit are in neither."""
    outside: dict[int, None] = {}
    barred: dict[int, None] = {}
    by_team: dict[str, list[JobView]] = {}
    for job in jobs:
        if job.team in ledger.quotas and job.gpu_milli:
            by_team.setdefault(job.team, []).append(job)
    for team, members in by_team.items():
        left = ledger.quotas[team].gpus * GPU_MILLI - ledger.used.get(team, 0)
        over = dict.fromkeys(job.id for job in _beyond(members, left, capacity, ask, elastic=elastic))
        outside.update(over)
        if team in ledger.limits:
            barred.update(over)
    for job in jobs:
        if job.id in barred:
            ledger.reasons[job.id] = (_at_quota(job, ledger),)
    return Split(
        entitled=[job for job in jobs if job.id not in outside],
        borrowing=[job for job in jobs if job.id in outside and job.id not in barred],
    )


def _beyond(members: list[JobView], left: int, capacity: Capacity, ask: Ask, *, elastic: bool) -> list[JobView]:
    """Those of a team's jobs that its quota does not cover."""
    sizes = {job.id: (job.sizes[0] if elastic else job.requested) * job.gpu_milli for job in members}
    if sum(sizes.values()) <= left:
        return []
    bound = Capacity(
        gpu_milli={t: min(milli, max(0, left)) for t, milli in capacity.gpu_milli.items()},
        cpus=capacity.cpus,
        memory_mib=capacity.memory_mib,
    )
    chosen = ask(members, bound).grants
    beyond: list[JobView] = []
    for job in sorted(members, key=lambda job: job.id not in chosen):
        if sizes[job.id] <= left:
            left -= sizes[job.id]
        else:
            beyond.append(job)
    return beyond


def _at_quota(job: JobView, ledger: Ledger) -> Reason:
    quota, used = ledger.quotas[job.team].gpus, ledger.used.get(job.team, 0) // GPU_MILLI
    return Reason(code=ReasonCode.QUOTA, detail={"team": job.team, "quota": quota, "used": used})


def give_back(entitled: Sequence[JobView], ledger: Ledger, snapshot: Snapshot, weigh: Callable[[], None]) -> None:
    """Cut teams that grew beyond their quota back to it: always those that may not borrow, the others while an
    entitled job of another team waits. What is left of a growth after a cut is weighed again; then those that wait
    are let in."""
    for team in ledger.limits:
        _cut(team, entitled, ledger)
    weigh()
    waiting = [job for job in entitled if job.id not in ledger.grants and job.gpu_milli]
    if not waiting:
        return
    for team in ledger.quotas:
        if any(job.team != team for job in waiting):
            _cut(team, entitled, ledger)
    weigh()
    admit(waiting, ledger, snapshot)


def _cut(team: str, jobs: Sequence[JobView], ledger: Ledger) -> None:
    """Shrink the team's jobs, the latest first, until it is within its quota."""
    excess = ledger.used.get(team, 0) - ledger.quotas[team].gpus * GPU_MILLI
    for job in reversed(jobs):
        if excess <= 0:
            return
        given = ledger.grants.get(job.id)
        if job.team != team or given is None or not job.gpu_milli or given.n == job.sizes[0]:
            continue
        target = given.n - -(-excess // job.gpu_milli)
        n = max((size for size in job.sizes if size <= target), default=job.sizes[0])
        excess -= (given.n - n) * job.gpu_milli
        ledger.change(job, grant(n, given.gpu_type))


def explain_borrowers(borrowing: Sequence[JobView], ledger: Ledger) -> None:
    """Jobs beyond the quota that found nothing to borrow wait because of it."""
    for job in borrowing:
        if job.id not in ledger.grants:
            ledger.reasons[job.id] = (_at_quota(job, ledger), *ledger.reasons.get(job.id, ()))
