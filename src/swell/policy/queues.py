"""Queues by attained service (discretised two-dimensional LAS), as both Tiresias policies use them.

A job's queue is the number of thresholds its attained GPU-seconds have passed, counted from its last promotion. A
waiting job that has waited `knob` times as long as it has run since then is promoted: service, waiting and running
time are counted from that moment on, so that the promotion lasts. O(jobs log jobs).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, recall, remember
from swell.policy.options import Option, Options, flag, number, numbers

OPTIONS: Options = {
    "thresholds_gpu_s": Option(
        default="3600", low=0.0, numbers=True, doc="attained GPU-seconds at which a job leaves each queue, rising"
    ),
    "knob": Option(
        default=8.0, low=0.0, doc="a job that waited this many times as long as it ran returns to the top queue"
    ),
    "by_submission": Option(
        default=False, doc="in a queue by submission alone (as published simulations did), not by first start"
    ),
}


def in_queues(snapshot: Snapshot, memory: Memory) -> tuple[list[tuple[int, JobView]], Memory]:
    """(queue, job) in the order to serve them, and the memory with new promotions."""
    thresholds = numbers(snapshot, OPTIONS, "thresholds_gpu_s")
    knob = number(snapshot, OPTIONS, "knob")
    by_submission = flag(snapshot, OPTIONS, "by_submission")
    now_s = snapshot.now_s
    known = memory.get("jobs")
    promotions: dict[JobId, Mapping[str, float]] = {}
    keyed: list[tuple[int, float, int, JobView]] = []
    for place, job in enumerate(snapshot.jobs):
        service_s = job.service_s(now_s)
        if known:
            service_s -= recall(memory, job.id).get("service_s", 0.0)
        queue = bisect_left(thresholds, service_s)
        if queue and not job.held_n and _has_waited(job, recall(memory, job.id), knob, now_s):
            promotions[job.id] = _promotion(job, now_s)
            queue = 0
        started_s = job.first_started_s if job.first_started_s is not None else float("inf")
        if by_submission:
            started_s = 0.0
        keyed.append((queue, started_s, place, job))
    keyed.sort(key=_serve_first)
    return [(queue, job) for queue, _, _, job in keyed], remember(memory, promotions)


def _serve_first(entry: tuple[int, float, int, JobView]) -> tuple[int, float, int]:
    """Within a queue by first start, those never started after them, by submission."""
    return entry[:3]


def _has_waited(job: JobView, last: Mapping[str, float], knob: float, now_s: float) -> bool:
    waited_s = job.waited_s + job.waiting_s(now_s) - last.get("waited_s", 0.0)
    return waited_s >= knob * (job.ran_s - last.get("ran_s", 0.0))


def _promotion(job: JobView, now_s: float) -> Mapping[str, float]:
    return {
        "service_s": job.service_s(now_s),
        "waited_s": job.waited_s + job.waiting_s(now_s),
        "ran_s": job.ran_s,
    }
