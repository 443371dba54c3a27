"""Histories by hand: records and events of jobs, for tests of the speed book."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from swell.core import lifecycle
from swell.core.events import EpochEnded, Event, ExitReason, JobSubmitted, RunEnded, RunPlanned, RunStarted
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Part
from swell.core.state import JobRecord, State
from swell.speed.book import Book

NODES = {"gpu": 8}


class History:
    """A state and a book that hear the same events."""

    def __init__(self) -> None:
        self.state = State()
        self.book = Book()
        self.now_s = 0.0

    def tell(self, event: Event) -> None:
        lifecycle.apply(self.state, event)
        self.book.learn(event)

    def submit(self, job: int, **spec: Any) -> JobRecord:
        gpus = spec.pop("gpus", GpuRequest(min=1, max=16))
        values: dict[str, Any] = {"name": f"job{job}", "command": ("python", "train.py"), "uses_library": True} | spec
        self.tell(JobSubmitted(job=job, spec=JobSpec(gpus=gpus, **values), at_s=self.now_s))
        return self.state.jobs[job]

    def run(
        self, job: int, gpus: int, times_s: Iterable[float], nodes: int = 1, gpu_type: str = "gpu", **more: Any
    ) -> None:
        """One attempt with an epoch of each of these times, stopped at its end."""
        run = RunId(job, self.state.jobs[job].attempts + 1)
        parts = tuple(Part(node=f"n{m}", gpus=tuple(range(gpus // nodes + (m < gpus % nodes)))) for m in range(nodes))
        self.tell(RunPlanned(run=run, allocation=Allocation(parts=parts, gpu_type=gpu_type), at_s=self.now_s))
        self.tell(RunStarted(run=run, at_s=self.now_s))
        epoch = self.state.jobs[job].epochs_done
        for time_s in times_s:
            self.now_s += time_s
            epoch += 1
            self.tell(
                EpochEnded(
                    run=run,
                    at_s=self.now_s,
                    epoch=epoch,
                    epoch_s=time_s,
                    gpus=gpus,
                    nodes=nodes,
                    gpu_type=gpu_type,
                    **more,
                )
            )
        self.end(job, ExitReason.STOPPED)

    def end(self, job: int, reason: ExitReason) -> None:
        run = RunId(job, self.state.jobs[job].attempts)
        self.tell(RunEnded(run=run, reason=reason, at_s=self.now_s))

    def curve(self, job: int, gpu_type: str = "gpu") -> tuple[float, ...]:
        return self.book.speed(self.state.jobs[job], NODES).curve(gpu_type)

    def remaining_s(self, job: int) -> float:
        return self.book.remaining(self.state.jobs[job]).at_speed_1_s
