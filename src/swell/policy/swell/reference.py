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
from swell.policy.swell.measures import Bidder, Chain, Cluster, concave, lateness, left_s, median, speed_at, urgency
from swell.policy.swell.settings import MOST_LATE, START, Settings


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
    sizes = useful_sizes(job.sizes, cluster.per_node)
    return Bidder(job, curve, concave({n: speed_at(curve, n) for n in sizes}), left_s(job, cluster.now_s))


def _weigh(bidders: Sequence[Bidder], cluster: Cluster, settings: Settings) -> None:
    """The user's weight, times up to 10 for a deadline, times a power of lateness beyond that of the median job."""
    late = [lateness(bidder, len(bidders), cluster) for bidder in bidders]
    usual = max(1.0, median(late)) if len(bidders) > 1 else 1.0
    for bidder, rho in zip(bidders, late, strict=True):
        excess = min(max(rho / (usual * settings.tolerance), 1.0), MOST_LATE)
        bidder.weight = max(bidder.job.weight, 1e-6) * urgency(bidder, cluster.now_s) * excess**settings.fairness


def _find_worth(bidders: Sequence[Bidder], cluster: Cluster, settings: Settings) -> None:
    """From the longest job (what is left of it over its weight) to the shortest: all before it are longer."""
    longer = 0.0
    lengths = [bidder.left_s / bidder.gpu_speed / bidder.weight for bidder in bidders]
    for _, index in sorted(zip(lengths, range(len(bidders)), strict=True), reverse=True):
        bidder = bidders[index]
        gpu_price = settings.price * (longer + settings.arrivals) / (cluster.milli / GPU_MILLI)
        gpu = bidder.job.gpu_milli / GPU_MILLI
        bidder.worth = min(((bidder.weight + gpu_price * (n * gpu)) / s for n, s in bidder.chain), default=0.0)
        longer += bidder.weight


def _values(bidder: Bidder, settings: Settings) -> Chain:
    """What each size is worth: its speed, less what a restart takes of the time that is left, times the job's worth.
    The held size needs no restart: it counts more, by what a restart costs within the horizon."""
    job, held = bidder.job, bidder.held
    restarts = settings.restart if held else START
    values = {n: _after_restarts(restarts, bidder, s) for n, s in bidder.chain}
    if held:
        stays = speed_at(bidder.curve, held) * (1.0 + job.restart_cost_s / settings.horizon_s)
        values[held] = max(values.get(held, 0.0), stays)
    return [(n, value * bidder.worth) for n, value in concave(values)]


def _after_restarts(restarts: float, bidder: Bidder, speed: float) -> float:
    """S · t / (t + restarts · cost), t being the time left at that speed."""
    return speed / (1.0 + restarts * bidder.job.restart_cost_s / bidder.left_s * speed)


def _sell(bidders: Sequence[Bidder], milli: int, settings: Settings) -> int:
    """Steps from size to size, the best value per GPU first. A job that a step did not fit takes no later one. What is
    left, in thousandths of a GPU."""
    steps: list[tuple[float, Bidder, int, int]] = []
    for bidder in bidders:
        gain, n, value = float("inf"), 0, 0.0
        for more, better in _values(bidder, settings):
            cost = (more - n) * bidder.job.gpu_milli
            gain = min(gain, (better - value) / cost)
            steps.append((gain, bidder, more, cost))
            n, value = more, better
    blocked = set[JobId]()
    for gain, bidder, more, cost in sorted(steps, key=lambda step: -step[0]):
        if cost > milli:
            blocked.add(bidder.job.id)
        elif gain > 0 and bidder.job.id not in blocked:
            bidder.n, milli = more, milli - cost
    return milli


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
                now *= 1.0 + bidder.job.restart_cost_s / settings.horizon_s
            if more > n and speed > now:
                bidder.n, milli = more, milli - (more - n) * cost
