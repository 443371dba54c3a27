"""Small logs to feed to stores and states: whole lives of jobs, as events."""

from __future__ import annotations

from typing import Any

from swell.core import events as ev
from swell.core.events import Event, ExitReason, StopWhy
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Gpu, Node, Part

T0 = 1_700_000_000.0


def submitted(job: int, **spec: Any) -> ev.JobSubmitted:
    said = {"name": f"job-{job}", "command": ("python", "train.py"), "user": "ann", "gpus": GpuRequest(max=4)}
    batch, key = spec.pop("batch", ""), spec.pop("key", "")
    return ev.JobSubmitted(job=job, spec=JobSpec(**{**said, **spec}), at_s=T0 + job, batch=batch, key=key)


def on(node: str, *gpus: int) -> Allocation:
    return Allocation(parts=(Part(node=node, gpus=gpus or (0,), cpus=1),), gpu_type="gpu")


def planned(job: int, attempt: int = 1, *, node: str = "n1", at_s: float = 1.0) -> ev.RunPlanned:
    return ev.RunPlanned(run=RunId(job, attempt), allocation=on(node, job % 4), at_s=T0 + job + at_s, reason="room")


def ended(job: int, attempt: int = 1, reason: ExitReason = ExitReason.FINISHED, *, at_s: float = 9.0) -> ev.RunEnded:
    return ev.RunEnded(run=RunId(job, attempt), reason=reason, at_s=T0 + job + at_s, exit_code=0)


def short_life(job: int) -> list[Event]:
    """Five events: submitted, planned, started, one epoch, finished."""
    run = RunId(job, 1)
    return [
        submitted(job),
        planned(job),
        ev.RunStarted(run=run, at_s=T0 + job + 2),
        ev.EpochEnded(run=run, at_s=T0 + job + 3, epoch=1, epoch_s=1.0, metrics={"loss": 0.3}),
        ended(job),
    ]


def moving_life(job: int) -> list[Event]:
    """Preempted on n1, goes on and finishes on n2."""
    return [
        submitted(job),
        planned(job),
        ev.RunStarted(run=RunId(job, 1), at_s=T0 + job + 2),
        ev.RunStopRequested(run=RunId(job, 1), why=StopWhy.PREEMPTED, at_s=T0 + job + 3),
        ended(job, 1, ExitReason.STOPPED, at_s=4.0),
        planned(job, 2, node="n2", at_s=5.0),
        ev.RunStarted(run=RunId(job, 2), at_s=T0 + job + 6),
        ended(job, 2),
    ]


def two_nodes() -> list[Event]:
    gpus = (Gpu(index=0, type="gpu", memory_mib=16_000), Gpu(index=1, type="gpu"))
    return [ev.NodeObserved(node=Node(name=name, gpus=gpus, cpus=8), at_s=T0) for name in ("n1", "n2")]
