"""The algorithm of the policy in scalar code, for one GPU type: what `vectorised` computes, job by job.

Nothing runs this but tests and readers: tests/property/test_swell_reference.py holds it equal to the fast version on
random cases, and docs/explanation/why-three-gpus.md works an example by hand with it. What is measured of one job (how
late it is, what is left of it) is in `measures`. Neither may import anything of the vectorised code.

A second of progress of a job is worth what a second of delay costs: one second to the job itself, and n / N seconds to
each of the `longer` jobs behind it while it uses n of N GPUs. On n GPUs it makes S(n) seconds of progress per second:

    worth = min over n of (weight + price · longer · n / N) / S(n)

GPUs are given out so that the sum of worth · S(n) is greatest. Sizes that need a restart count for less.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView
from swell.policy._envelope import useful_sizes
from swell.policy.swell.measures import (
    Bidder,
    Chain,
    Cluster,
    Sale,
    Step,
    concave,
    lateness,
    left_s,
    median,
    speed_at,
    urgency,
)
from swell.policy.swell.settings import BETTER, FIRST_TRIES, MOST_LATE, START, WORTH_TRYING, Settings


def decide(jobs: Sequence[JobView], cluster: Cluster, settings: Settings) -> dict[JobId, int]:
    """How many GPUs each job gets; jobs that get none are left out. All jobs may use the cluster's one GPU type."""
    bidders = [_bidder(job, cluster) for job in jobs]
    _weigh(bidders, cluster, settings)
    _find_worth(bidders, cluster, settings)
    left = _sell(bidders, cluster.milli, settings)
    _use_leftovers(bidders, left, settings)
    return {bidder.job.id: bidder.n for bidder in bidders if bidder.n}


def _bidder(job: JobView, cluster: Cluster) -> Bidder:
    curve = job.curve(cluster.gpu_type)
    chain = concave({n: speed_at(curve, n) for n in useful_sizes(job.sizes, cluster.per_node)})
    now_s = cluster.now_s
    return Bidder(job, curve, chain, left_s(job, now_s), now_s - job.changed_s, job.stop_cost_s(now_s))


def _weigh(bidders: Sequence[Bidder], cluster: Cluster, settings: Settings) -> None:
    """The user's weight, times up to 10 for a deadline, times a power of lateness beyond that of the median job. Of a
    job of unknown length nobody can say whether it is late."""
    late = [lateness(bidder, len(bidders), cluster) for bidder in bidders]
    usual = max(1.0, median(late)) if len(bidders) > 1 else 1.0
    for bidder, rho in zip(bidders, late, strict=True):
        known = not bidder.job.length_median_1_s
        excess = min(max(rho / (usual * settings.tolerance), 1.0), MOST_LATE) if known else 1.0
        bidder.weight = max(bidder.job.weight, 1e-6) * urgency(bidder, cluster.now_s) * excess**settings.fairness


def _find_worth(bidders: Sequence[Bidder], cluster: Cluster, settings: Settings) -> None:
    """From the longest job (what is left of it over its weight) to the shortest: all before it are longer."""
    longer = 0.0
    lengths = [bidder.left_s / bidder.gpu_speed / bidder.weight for bidder in bidders]
    for _, index in sorted(zip(lengths, range(len(bidders)), strict=True), reverse=True):
        bidder = bidders[index]
        gpu_price = settings.price * (longer + settings.arrivals) / (cluster.milli / GPU_MILLI)
        gpu = bidder.job.gpu_milli / GPU_MILLI
        speeds = [(n, _first_speed(bidder, s)) for n, s in bidder.chain]
        bidder.worth = min(((bidder.weight + gpu_price * (n * gpu)) / s for n, s in speeds), default=0.0)
        progress = bidder.weight / bidder.gpu_speed if bidder.worth else 0.0  # worth of a GPU's, the same to all jobs
        bidder.worth = bidder.worth ** (1.0 - settings.efficiency) * progress**settings.efficiency
        longer += bidder.weight


def _first_speed(bidder: Bidder, speed: float) -> float:
    """What a waiting job must do before it trains is part of what is left of it."""
    return speed if bidder.held else _after_restarts(START, bidder, speed)


def _values(bidder: Bidder, settings: Settings) -> Chain:
    """What each size is worth: its speed, less what a restart takes of the time that is left, times the job's worth.
    The held size needs no restart: it counts more (`_stick`)."""
    held = bidder.held
    restarts = settings.restart if held else START
    values = {n: _after_restarts(restarts, bidder, s) for n, s in bidder.chain}
    if held:
        stays = speed_at(bidder.curve, held) * _stick(bidder, settings)
        values[held] = max(values.get(held, 0.0), stays)
    return [(n, value * bidder.worth) for n, value in concave(values)]


def _stick(bidder: Bidder, settings: Settings) -> float:
    """By how much the held size counts more: what a restart costs within the time that a size lasts. That is the
    horizon, or as long again as the held one has lasted: a job that nobody disturbs need not gain much to change. What
    a stop now would wait for or lose is over soon: within the horizon."""
    restart_s = bidder.job.restart_cost_s
    lasts_s = max(settings.horizon_s, bidder.held_for_s)
    return 1.0 + restart_s / lasts_s + (bidder.stop_cost_s - restart_s) / settings.horizon_s


def _after_restarts(restarts: float, bidder: Bidder, speed: float) -> float:
    """S · t / (t + restarts · cost), t being the time left at that speed."""
    return speed / (1.0 + restarts * bidder.stop_cost_s / bidder.left_s * speed)


def _sell(bidders: Sequence[Bidder], milli: int, settings: Settings) -> int:
    """Steps from size to size, the best value per GPU first. Where a step did not fit and much could be gained by it,
    also with that step first: the way that makes the sum of values greatest. What is left, in thousandths of a GPU."""
    steps: list[Step] = []
    for bidder in bidders:
        gain, n, value = float("inf"), 0, 0.0
        for more, better in _values(bidder, settings):
            cost = (more - n) * bidder.job.gpu_milli
            gain = min(gain, (better - value) / cost)
            steps.append(Step(gain, bidder.job.id, more, cost, better))
            n, value = more, better
    steps = sorted((step for step in steps if step.gain > 0), key=lambda step: -step.gain)
    in_order = best = _in_order(steps, milli)
    if in_order.bound > in_order.value * WORTH_TRYING:
        for step in in_order.blocked[:FIRST_TRIES]:
            trial = _in_order(steps, milli, step)
            if trial.value > best.value * BETTER and _goes_first(bidders, in_order, trial, step.job):
                best = trial
    for bidder in bidders:
        bidder.n = best.sold[bidder.job.id].n if bidder.job.id in best.sold else 0
    return best.left


def _goes_first(bidders: Sequence[Bidder], in_order: Sale, trial: Sale, job: JobId) -> bool:
    """Smith's rule: does it delay those that get nothing because of it by less than they would delay it?"""
    by_id = {bidder.job.id: bidder for bidder in bidders}

    def takes_s(sale: Sale, of: JobId) -> float:
        return by_id[of].left_s * by_id[of].worth / sale.sold[of].value

    pushed = [other for other in in_order.sold if other not in trial.sold]
    if not pushed:
        return True
    delay = takes_s(trial, job) * sum(by_id[other].weight for other in pushed)
    return delay <= max(takes_s(in_order, other) for other in pushed) * by_id[job].weight


def _in_order(steps: Sequence[Step], milli: int, first: Step | None = None) -> Sale:
    """A job that a step did not fit takes no later one. `first`: this step, with those before it, before all others."""
    sale = Sale(left=milli)
    if first is not None:
        before = [step for step in steps if step.job == first.job and step.n <= first.n]
        sale.sold[first.job], sale.left = first, milli - sum(step.cost for step in before)
        steps = [step for step in steps if step not in before]
    too_large: dict[JobId, Step] = {}
    for step in steps:
        if sale.left > 0 and step.job not in too_large:
            if step.cost <= sale.left:
                sale.sold[step.job], sale.left = step, sale.left - step.cost
            else:
                sale.bound = sale.bound or sale.value + sale.left * step.gain
                too_large[step.job] = step
    costs = {
        job: sum(step.cost for step in steps if step.job == job and step.n <= at.n) for job, at in too_large.items()
    }
    sale.blocked = [at for job, at in too_large.items() if costs[job] <= milli]
    return sale


def _use_leftovers(bidders: Sequence[Bidder], milli: int, settings: Settings) -> None:
    """Any allowed size that still fits: first to jobs that have nothing, then to jobs that gain from more."""
    by_worth = sorted(bidders, key=lambda bidder: -bidder.worth)
    for has_some in (False, True):
        for bidder in [bidder for bidder in by_worth if bool(bidder.n) is has_some]:
            n, cost = bidder.n, bidder.job.gpu_milli
            more, speed = bidder.fastest(n + milli // cost)
            now = speed_at(bidder.curve, n)
            if n and n == bidder.held:
                speed = _after_restarts(settings.restart, bidder, speed)
                now *= _stick(bidder, settings)
            if more > n and speed > now:
                bidder.n, milli = more, milli - (more - n) * cost
