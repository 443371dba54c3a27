"""What the reference measures of one job: what is left of it, how late and how urgent it is, and its concave curve.

`reference` calls these. `columns` has the same for all jobs at once; a property test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import Curve, JobView
from swell.policy._envelope import envelope
from swell.policy._gittins import lasting_rank_s
from swell.policy.swell.settings import LEAST_LEFT, LEVEL, MOST_URGENT

Chain = list[tuple[int, float]]
"""(size, speed or value): the vertices of a concave curve from (0, 0), rising."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    gpu_type: str
    milli: int  # thousandths of a GPU, free to give
    per_node: int
    now_s: float


@dataclass(slots=True)
class Bidder:
    """A job with what the policy knows and decides about it."""

    job: JobView
    curve: Curve
    chain: Chain  # of speeds, over the sizes that pack into nodes
    left_s: float  # at speed 1
    held_for_s: float  # what it holds now, unchanged
    stop_cost_s: float  # of a change of size, and of the start of a job that waits
    weight: float = 1.0  # of a second of the job's own delay
    worth: float = 0.0  # of a second of its progress, to everybody
    n: int = 0  # what it gets

    @property
    def held(self) -> int:
        """0 also while it is being stopped, or at a size that is not allowed: it has nothing to lose by a change."""
        job = self.job
        return job.held_n if job.held_n in job.sizes and not job.stopping else 0

    @property
    def gpu_speed(self) -> float:
        """Of one GPU, at the smallest size."""
        return self.chain[0][1] / self.chain[0][0] if self.chain else 1.0

    def fastest(self, limit: int) -> tuple[int, float]:
        """The smallest allowed size up to the limit that is as fast as any of them, and its speed."""
        sizes = [(speed_at(self.curve, n), -n) for n in self.job.sizes if n <= limit]
        speed, n = max(sizes, default=(0.0, 0))
        return -n, speed


@dataclass(frozen=True, slots=True)
class Step:
    """From one size of a job to the next."""

    gain: float  # in value, per thousandth of a GPU
    job: JobId
    n: int  # GPUs after it
    cost: int  # thousandths of a GPU
    value: float  # of all that the job then has


@dataclass(slots=True)
class Sale:
    """The last step of each job that bought one; what is left, in thousandths of a GPU."""

    left: int
    sold: dict[JobId, Step] = field(default_factory=dict)
    bound: float = 0.0  # no sale has a greater value
    blocked: list[Step] = field(default_factory=list)  # did not fit while something was left

    @property
    def value(self) -> float:
        return sum(step.value for step in self.sold.values())


def left_s(job: JobView, now_s: float) -> float:
    """Seconds of work left at speed 1. A job that is overdue by x seconds is assumed to need x more; one whose length
    is only known as a distribution is taken for one that certainly has its Gittins rank left."""
    done = job.rate_now * max(0.0, now_s - job.as_of_s)
    if job.length_median_1_s:
        level_s = LEVEL * max(job.restart_cost_s, 1.0)
        return float(lasting_rank_s(job.length_median_1_s, job.length_sigma, job.done_1_s + done, level_s))
    return max(abs(job.remaining_1_s - done), LEAST_LEFT * job.remaining_1_s, 1e-3)


def lateness(bidder: Bidder, jobs: int, cluster: Cluster) -> float:
    """Finish-time fairness if the job had an equal share of the cluster from now on: 1 is as if it always had."""
    job = bidder.job
    age = max(cluster.now_s - job.submitted_s, 0.0)
    waits = 0.0 if job.waiting_since_s is None else max(cluster.now_s - job.waiting_since_s, 0.0)
    ran = max(age - (job.waited_s + waits), 0.0)
    since = max(cluster.now_s - job.as_of_s, 0.0)
    service = job.attained_gpu_s + job.held_n * job.gpu_milli / GPU_MILLI * since
    gpus = service / ran if ran > 0 else 0.0  # on average, while it ran
    speed = height(bidder.chain, gpus) if bidder.held else gpus * bidder.gpu_speed
    overdue = 0.0 if job.length_median_1_s else max(job.rate_now * since - job.remaining_1_s, 0.0)
    work = max(ran * speed + bidder.left_s - 2 * overdue, LEAST_LEFT * job.remaining_1_s)
    return (age * height(bidder.chain, cluster.milli / GPU_MILLI / jobs) + bidder.left_s) / work


def urgency(bidder: Bidder, now_s: float) -> float:
    """1 without a deadline or once it is missed; rises as the time left at full speed fills the time there is."""
    top_speed = bidder.chain[-1][1] if bidder.chain else 0.0
    slack, at_best = bidder.job.deadline_s - now_s, bidder.left_s / max(top_speed, 1e-9)
    if not bidder.job.deadline_s > 0 or slack <= at_best:
        return 1.0
    return min(1.0 / max(1.0 - at_best / slack, 1e-9), MOST_URGENT)


def concave(points: Mapping[int, float]) -> Chain:
    """The upper concave envelope of these points and (0, 0)."""
    sizes = tuple(sorted(points))
    return envelope(tuple(points.get(n, 0.0) for n in range(sizes[-1] + 1)), sizes) if sizes else []


def height(chain: Chain, n: float) -> float:
    """Of a concave curve at any number of GPUs, also between sizes."""
    before = (0, 0.0)
    for vertex in chain:
        if vertex[0] >= n:
            return before[1] + (vertex[1] - before[1]) * ((n - before[0]) / (vertex[0] - before[0]))
        before = vertex
    return before[1]


def speed_at(curve: Curve, n: int) -> float:
    return curve[min(n, len(curve) - 1)]


def median(numbers: Sequence[float]) -> float:
    ranked = sorted(numbers)
    half = len(ranked) // 2
    return (ranked[half] + ranked[-1 - half]) / 2
