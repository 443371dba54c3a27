"""Team quotas with borrowing, inside a priority class.

A team's jobs that fit its quota (in the policy's own order) are entitled; the others borrow. Entitled jobs of all
teams are decided first, then, on what is left, those that borrow: what is borrowed is given back by the next decision
in which somebody entitled needs it. Who turns out to be within the quota is known at the end only: then every job
that waits although it fits its team's quota takes back what it lacks from teams that are beyond theirs (`take_back`),
with a policy that is not elastic only those that the policy would start.
A team whose entitled jobs grew beyond its quota is cut back to it while an entitled job of another team waits.
A team that may not borrow is always held to its quota; a team without one is entitled to all. O(jobs), one more call
of the policy for each team that asks for more than its quota, and O(jobs) for each job that takes something back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from swell.core.decision import Decision, Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import Capacity, JobView, Snapshot
from swell.policy.base import grant, types_of
from swell.policy.bundles import Less, Stock
from swell.policy.ledger import Ledger
from swell.policy.resizing import admit, stock_left

Ask = Callable[[Sequence[JobView], Capacity], Decision]
"""Calls the policy for these jobs with this capacity."""
NO_END = 1 << 62
"""More thousandths of a GPU than any cluster has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    entitled: list[JobView]
    borrowing: list[JobView]
    barred: list[JobView]

    def by_right(self) -> list[JobView]:
        return [*self.entitled, *self.borrowing, *self.barred]


def split(jobs: Sequence[JobView], ledger: Ledger, capacity: Capacity, ask: Ask, *, elastic: bool) -> Split:
    """Who is within the quota of their team, who borrows, and who may not borrow and does not fit."""
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
        barred=[job for job in jobs if job.id in barred],
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


def give_back(entitled: Sequence[JobView], ledger: Ledger, snapshot: Snapshot, weigh: Callable[[], object]) -> None:
    """Cut teams that grew beyond their quota back to it: always those that may not borrow, the others while an
    entitled job of another team waits (what it cannot use is there to be borrowed: starting jobs is better than
    growth). What is left of a growth after a cut is weighed again; then those that wait are let in, those within
    their quota first."""
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
    take_back(entitled, ledger, snapshot, elastic=True)
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


def within(jobs: Sequence[JobView], ledger: Ledger) -> list[JobView]:
    """Those of the jobs that wait although their team's quota covers the size they ask for."""
    waiting = [job for job in jobs if job.id not in ledger.grants and job.gpu_milli]
    return [job for job in waiting if _excess(job.team, ledger, job.requested * job.gpu_milli) <= 0]


def reclaimable(jobs: Sequence[JobView], ledger: Ledger) -> dict[str, int]:
    """Thousandths of a GPU by type: what is free, and what stopping jobs of teams beyond their quota would free."""
    lent = {t: _lent(None, NO_END, t, jobs, ledger, elastic=False) for t in ledger.purse.milli}
    return {t: free + NO_END - lent[t].short for t, free in ledger.purse.milli.items()}


def take_back(
    jobs: Sequence[JobView],
    ledger: Ledger,
    snapshot: Snapshot,
    *,
    elastic: bool,
    only: Container[JobId] | None = None,
) -> None:
    """Let in every job (of `only`, if set) that waits although its team's quota covers it, if what is free and what
    teams beyond their quota hold is enough. `jobs`: those with the best right first; the last give back first."""
    stock: Stock | None = None
    hopeless: dict[tuple[str, str], int] = {}  # what could not be had, so that thousands who wait do not all look
    for job in jobs:
        n = job.sizes[0] if elastic else job.requested
        if only is not None and job.id not in only:
            continue
        if job.id in ledger.grants or not job.gpu_milli or _excess(job.team, ledger, n * job.gpu_milli) > 0:
            continue
        for gpu_type in sorted(types_of(job), key=lambda t: not ledger.purse.fits(job, n, t)):
            if n * job.gpu_milli >= hopeless.get((job.team, gpu_type), n * job.gpu_milli + 1):
                continue
            returns = _returns(job, n, gpu_type, jobs, ledger, elastic=elastic)
            if returns is None:
                hopeless[job.team, gpu_type] = n * job.gpu_milli
                continue
            after = (stock or stock_left(ledger, snapshot)).after(returns, ledger.grants)
            given = after.admit(job, n)
            if given is None:
                continue
            _hand_over(returns, ledger)
            ledger.give(job, given)
            ledger.reasons[job.id] = ()
            stock = after
            hopeless.clear()
            break


def _excess(team: str, ledger: Ledger, more: int = 0) -> int:
    """By how much the team exceeds its quota, or would with `more`; 0 for a team without a quota."""
    quota = ledger.quotas.get(team)
    return ledger.used.get(team, 0) + more - quota.gpus * GPU_MILLI if quota else 0


def _returns(
    job: JobView, n: int, gpu_type: str, jobs: Sequence[JobView], ledger: Ledger, *, elastic: bool
) -> list[Less] | None:
    """Jobs to shrink or to stop so that this job gets n GPUs; None if that is not enough."""
    short = n * job.gpu_milli - ledger.purse.milli.get(gpu_type, 0)
    lent = _lent(job.team, short, gpu_type, jobs, ledger, elastic=elastic)
    return lent.returns if lent.short <= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lent:
    returns: list[Less]
    short: int  # thousandths of a GPU that these returns still leave to be found


def _lent(
    team: str | None, short: int, gpu_type: str, jobs: Sequence[JobView], ledger: Ledger, *, elastic: bool
) -> _Lent:
    """Jobs of teams beyond their quota (but not of this team) to shrink, or to stop (size 0), until `short` is found.
    All that can shrink do so before any is stopped."""
    excess = {other: over for other in ledger.quotas if other != team and (over := _excess(other, ledger)) > 0}
    sizes: dict[JobId, Less] = {}
    lent = [o for o in reversed(jobs) if o.team in excess and o.gpu_milli and o.id in ledger.grants] if excess else []
    for smaller in (_shrunk, _stopped) if elastic else (_stopped,):
        for other in lent:
            given = ledger.grants[other.id]
            if short <= 0:
                break
            if given.gpu_type != gpu_type or excess[other.team] <= 0:
                continue
            before = sizes[other.id].n if other.id in sizes else given.n
            after = smaller(other, before, min(short, excess[other.team]))
            freed = (before - after) * other.gpu_milli
            if freed:
                sizes[other.id] = Less(job=other, n=after)
                short -= freed
                excess[other.team] -= freed
    return _Lent(returns=list(sizes.values()), short=short)


def _shrunk(job: JobView, n: int, milli: int) -> int:
    """The size after giving back `milli`. A job that was to grow gives back all of its growth, since a part of it may
    not be worth the restart."""
    target = n - -(-milli // job.gpu_milli)
    if job.held_n and not job.stopping and job.held_n < n:
        target = min(target, job.held_n)
    return max((size for size in job.sizes if size <= target), default=job.sizes[0])


def _stopped(_job: JobView, _n: int, _milli: int) -> int:
    return 0


def _hand_over(returns: Sequence[Less], ledger: Ledger) -> None:
    for less in returns:
        if less.n:
            ledger.change(less.job, grant(less.n, ledger.grants[less.job.id].gpu_type))
        else:
            ledger.withdraw(less.job)
            ledger.reasons[less.job.id] = (_at_quota(less.job, ledger),)


def explain_borrowers(borrowing: Sequence[JobView], ledger: Ledger) -> None:
    """Jobs beyond the quota that found nothing to borrow wait because of it."""
    for job in borrowing:
        if job.id not in ledger.grants:
            ledger.reasons[job.id] = (_at_quota(job, ledger), *ledger.why(job.id))
