"""What a change of a running job costs, and who takes what is left: two layers around every policy.

`weigh` undoes growth and moves to another GPU type that would cost more than they bring over the job's remaining time.
`fill`, for elastic policies, gives what nobody took: first to jobs that wait (their minimum), then to running jobs that
were about to shrink and now need not, then step by step to whoever gains most, net of the restart that it costs.
O(jobs), and O(GPUs left · log jobs) for the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from swell.core.decision import Grant, Reason
from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import GAIN, Ladder, grant, grow_best_first, not_worth, speed_at
from swell.policy.bundles import Stock
from swell.policy.ledger import Ledger, allows


def held_grant(job: JobView) -> Grant:
    return grant(job.held_n, job.allocation.gpu_type if job.allocation else "")


def worth_above(job: JobView, now_s: float) -> float:
    """The speed a running job must exceed after a change for the change to pay: what it saves over the remaining time
    is more than the stop and the start cost."""
    held = held_grant(job)
    speed = speed_at(job, held.n, held.gpu_type)
    if speed <= 0.0:
        return 0.0
    left = 1.0 / speed - job.stop_cost_s(now_s) / job.remaining_s(now_s)
    return GAIN / left if left > 0.0 else float("inf")


def weigh(jobs: Sequence[JobView], ledger: Ledger, now_s: float) -> bool:
    """Running jobs whose growth or move does not pay keep what they hold. Was there any?"""
    undone = False
    grants = ledger.grants
    for job in [job for job in jobs if job.held_n and job.id in grants]:
        if job.stopping or not job.restart_cost_s or not job.gpu_milli:
            continue
        given = grants[job.id]
        if given.n <= job.held_n and job.allocation is not None and given.gpu_type == job.allocation.gpu_type:
            continue
        held = held_grant(job)
        if speed_at(job, given.n, given.gpu_type) <= worth_above(job, now_s) and _can_keep(job, held, given, ledger):
            ledger.change(job, held)
            ledger.reasons[job.id] = (_not_worth(job, held, given, now_s),)
            undone = True
    return undone


def _can_keep(job: JobView, held: Grant, given: Grant, ledger: Ledger) -> bool:
    if not allows(job, held) or not ledger.may_use(job, held.n - given.n):
        return False
    return given.gpu_type == held.gpu_type or ledger.purse.fits(job, held.n, held.gpu_type)


def _not_worth(job: JobView, held: Grant, given: Grant, now_s: float) -> Reason:
    remaining_s = job.remaining_s(now_s)
    before, after = (speed_at(job, g.n, g.gpu_type) or 1e-9 for g in (held, given))
    saved_s = remaining_s / before - remaining_s / after
    return not_worth(job, saved_s, now_s)


def fill(jobs: Sequence[JobView], ledger: Ledger, snapshot: Snapshot, *, resize: bool) -> None:
    """Give what is left to those who gain. `resize` False: do not touch running jobs, the policy weighed them."""
    if not any(ledger.purse.milli.values()):
        return
    admit(jobs, ledger, snapshot)
    if resize:
        _keep_instead_of_shrinking(jobs, ledger)
    if ledger.purse.free_gpus():
        _grow([job for job in jobs if job.team not in ledger.limits], ledger, snapshot, resize=resize)


def stock_left(ledger: Ledger, snapshot: Snapshot) -> Stock:
    """What is left, CPUs and memory included: a GPU is no gain to a job without them."""
    return Stock(snapshot.capacity, ledger.purse.milli).without(snapshot.jobs, ledger.grants)


def admit(jobs: Sequence[JobView], ledger: Ledger, snapshot: Snapshot) -> None:
    """Minimums for jobs that got nothing, in order, as far as they fit."""
    grants, purse = ledger.grants, ledger.purse
    most = max(purse.milli.values(), default=0)
    waiting = [(job, job.sizes[0]) for job in jobs if job.id not in grants]
    fitting = [(job, n) for job, n in waiting if n * job.gpu_milli <= most and purse.best_type(job, n) is not None]
    if not fitting:
        return
    stock = stock_left(ledger, snapshot)
    for job, n in fitting:
        if ledger.may_use(job, n) and (given := stock.admit(job, n)) is not None:
            _write_down(job, given, ledger)


def start_chosen(
    jobs: Mapping[JobId, JobView], chosen: Mapping[JobId, Grant], ledger: Ledger, snapshot: Snapshot
) -> list[JobId]:
    """Give these jobs, which have nothing, what a policy chose for them. Those that cannot have it."""
    stock = stock_left(ledger, snapshot)
    failed: list[JobId] = []
    for job_id in sorted(chosen):
        job, given = jobs.get(job_id), chosen[job_id]
        if job is None:
            continue
        if allows(job, given) and ledger.may_use(job, given.n) and stock.start(job, given):
            _write_down(job, given, ledger)
        else:
            failed.append(job_id)
    return failed


def _write_down(job: JobView, given: Grant, ledger: Ledger) -> None:
    """The stock has taken it from the ledger's purse already."""
    ledger.grants[job.id] = given
    ledger.use(job, given.n)
    ledger.reasons[job.id] = ()


def _grow(jobs: Sequence[JobView], ledger: Ledger, snapshot: Snapshot, *, resize: bool) -> None:
    grants = ledger.grants
    jobs = [job for job in jobs if job.id in grants and grants[job.id].n < job.sizes[-1]]
    if not jobs:
        return
    before = {job.id: grants[job.id].n for job in jobs if job.id in grants} if ledger.quotas else {}

    def first(job: JobView, given: Grant, rungs: Ladder) -> int:
        index = rungs.above(given.n)
        if not job.held_n or job.stopping or given.n != job.held_n or given.gpu_type != held_grant(job).gpu_type:
            return index  # it starts anew anyhow
        if not resize:
            return len(rungs.sizes)
        return max(index, bisect_right(rungs.speeds, worth_above(job, snapshot.now_s)))

    grow_best_first(jobs, grants, stock_left(ledger, snapshot), _per_gpu, first)
    for job in jobs:
        if job.id in before:
            ledger.use(job, grants[job.id].n - before[job.id])


def _per_gpu(_: JobView, speed: float, faster: float, gpus: int) -> float:
    return (faster - speed) / gpus


def _keep_instead_of_shrinking(jobs: Sequence[JobView], ledger: Ledger) -> None:
    grants = ledger.grants
    for job in [job for job in jobs if job.held_n and job.id in grants]:
        given = grants[job.id]
        if job.stopping or not job.gpu_milli or given.n >= job.held_n:
            continue
        held = held_grant(job)
        more = held.n - given.n
        same = given.gpu_type == held.gpu_type and allows(job, held)
        if same and ledger.purse.fits(job, more, held.gpu_type) and ledger.may_use(job, more):
            ledger.change(job, held)
