"""Real trainings (the demo's: numpy, real gradients, the in-job library) and the simulator's world of them.

What a training costs is measured on some, by the events of the daemon that ran them, and used to predict others.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from swell.core.events import EpochEnded, Event, ExitReason, RunEnded, RunStarted, StopAgreed, TrainingBegan
from swell.core.ids import JobId
from swell.core.resources import Node
from swell.core.state import JobRecord, JobState, Run
from swell.sim.workload import Arrival

ROOT = Path(__file__).resolve().parent.parent
SLOT_S = 2.0
"""Of one epoch on one slot; half of it on two."""


def training(rng: random.Random, number: int) -> dict[str, Any]:
    """A job file. Its epochs are all that the simulator needs to know of it."""
    epochs = rng.randint(4, 14)
    words = ["--width", "16", "--seed", str(number), "--epochs", str(epochs), "--slot-seconds", str(SLOT_S)]
    return {
        "name": f"t{number}",
        "command": [sys.executable, "-m", "swell.demo.trainer", *words],
        "env": {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        "gpus": {"min": 1, "max": rng.choice([1, 2, 4])},
        "launcher": "per-node",
        "cpus": 0,  # they mostly wait: slots are to be what is scarce
        "epochs": epochs,
        "uses_library": True,
    }


def arrivals(count: int, apart_s: float, seed: int) -> list[dict[str, Any]]:
    """Job files with the time `at` which each comes."""
    rng = random.Random(seed)
    at_s = 0.0
    found = []
    for number in range(count):
        at_s += rng.expovariate(1 / apart_s)
        found.append({"at": round(at_s, 2), **training(rng, 1000 * seed + number)})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds. Means of what was measured, but of what is drawn from all of it: what a policy learns of noisy times is
    not what it would learn of their mean."""

    up_s: float  # from there being room to all workers being up
    begin_s: tuple[float, ...]  # from there being room to the first epoch
    epoch_s: tuple[float, ...]  # of each epoch, beyond its slot time
    end_s: float  # from the end of the last epoch to the end of the run
    leave_s: float  # from the end of the epoch in which it was told to stop; median: some make one epoch more

    def __str__(self) -> str:
        begin_s, epoch_s = fmean(self.begin_s), fmean(self.epoch_s)
        return (
            f"up {self.up_s:.3f} s, begin {begin_s:.3f} s, epoch {epoch_s:.3f} s (of {len(self.epoch_s)}), "
            f"end {self.end_s:.3f} s, leave {self.leave_s:.3f} s"
        )


def measured(events: Sequence[Mapping[str, Any]]) -> Costs:
    """By the events of trainings that ran; if none was stopped, leaving is taken to cost what ending does."""
    runs: dict[str, dict[str, Any]] = {}
    submitted: dict[int, float] = {}
    for event in events:
        if event["type"] == "JobSubmitted":
            submitted[event["job"]] = event["at_s"]
        elif "run" in event:
            runs.setdefault(event["run"], {}).setdefault(event["type"], []).append(event)
    begun = [run for run in runs.values() if "TrainingBegan" in run and "RunPlanned" in run]
    decide_s = min(at(run, "RunPlanned") - submitted[int(run["RunPlanned"][0]["job"])] for run in begun if first(run))
    epochs_s = tuple(e["epoch_s"] - SLOT_S / e["gpus"] for run in begun for e in run.get("EpochEnded", ()))
    epoch_s = fmean(epochs_s)
    ends = [run for run in begun if reason(run) == "finished" and run.get("EpochEnded")]
    stops = [run for run in begun if reason(run) == "stopped" and run.get("EpochEnded") and "RunStopRequested" in run]
    end_s = fmean(at(run, "RunEnded") - boundary(run, epoch_s, at(run, "RunEnded"), down=True) for run in ends)
    left = [at(run, "RunEnded") - boundary(run, epoch_s, at(run, "RunStopRequested"), down=False) for run in stops]
    return Costs(
        up_s=decide_s + fmean(at(run, "RunStarted") - at(run, "RunPlanned") for run in begun),
        begin_s=tuple(decide_s + at(run, "TrainingBegan") - at(run, "RunPlanned") for run in begun),
        epoch_s=epochs_s,
        end_s=max(0.0, end_s),
        leave_s=max(0.0, median(left)) if left else max(0.0, end_s),
    )


def observed_node(events: Sequence[Mapping[str, Any]]) -> Node:
    """The machine as its daemon saw it: its CPUs count as well as its slots."""
    return next(msgspec.convert(event["node"], Node) for event in events if event["type"] == "NodeObserved")


def at(run: Mapping[str, Any], kind: str) -> float:
    return float(run[kind][0]["at_s"])


def first(run: Mapping[str, Any]) -> bool:
    return str(run["RunPlanned"][0]["run"]).endswith(".1")


def reason(run: Mapping[str, Any]) -> str:
    return str(run["RunEnded"][0]["reason"]) if "RunEnded" in run else ""


def boundary(run: Mapping[str, Any], epoch_s: float, now_s: float, *, down: bool) -> float:
    """The end of an epoch before, or after, that moment."""
    began_s = at(run, "TrainingBegan")
    each_s = epoch_s + SLOT_S / int(run["EpochEnded"][0]["gpus"])
    if down:
        return began_s + each_s * sum(int(e["count"]) for e in run["EpochEnded"])
    return began_s + each_s * max(1, math.ceil((now_s - began_s) / each_s))


class Trainings:
    """The simulator's world: epochs as long as some that were measured, a stop at the end of the epoch in which it is
    asked for."""

    def __init__(self, costs: Costs, seed: int) -> None:
        self._costs = costs
        self._rng = random.Random(seed)
        self._done: dict[JobId, int] = {}
        self._ends: dict[JobId, float] = {}  # of the epoch under way

    def submitted(self, job: JobRecord, arrival: Arrival) -> None:
        self._done[job.id] = 0

    def launched(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        run = _run(job)
        began_s = now_s + max(self._costs.up_s, self._rng.choice(self._costs.begin_s))
        began = TrainingBegan(run=run.id, at_s=began_s, epoch=self._done[job.id], epochs=job.spec.epochs)
        return (RunStarted(run=run.id, at_s=now_s + self._costs.up_s), began)

    def after(self, event: Event, job: JobRecord) -> Sequence[Event]:
        run = _run(job)
        if isinstance(event, EpochEnded):
            self._done[job.id] = event.epoch
        elif not isinstance(event, TrainingBegan):
            return ()
        if self._done[job.id] >= job.spec.epochs:
            ended = RunEnded(run=run.id, reason=ExitReason.FINISHED, at_s=event.at_s + self._costs.end_s, exit_code=0)
            return (ended,)
        if job.state is JobState.STOPPING:
            return self._leaving(job, run, event.at_s, event.at_s) if isinstance(event, TrainingBegan) else ()
        gpus = run.allocation.gpus
        each_s = self._rng.choice(self._costs.epoch_s) + SLOT_S / gpus
        self._ends[job.id] = event.at_s + each_s
        epoch = self._done[job.id] + 1
        return (
            EpochEnded(run=run.id, at_s=event.at_s + each_s, epoch=epoch, epoch_s=each_s, gpus=gpus, gpu_type="slot"),
        )

    def stopping(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        run = _run(job)
        if run.began_s is None or self._done[job.id] + 1 >= job.spec.epochs:
            return ()  # it hears of it when it begins; in its last epoch it ends by itself
        leaves_s = max(now_s, self._ends.get(job.id, now_s))
        return self._leaving(job, run, now_s, leaves_s)

    def _leaving(self, job: JobRecord, run: Run, agreed_s: float, leaves_s: float) -> Sequence[Event]:
        agreed = StopAgreed(run=run.id, epoch=self._done[job.id] + 1, step=0, at_s=agreed_s)
        ended = RunEnded(run=run.id, reason=ExitReason.STOPPED, at_s=leaves_s + self._costs.leave_s, exit_code=85)
        return (agreed, ended)

    def lost(self, job: JobRecord, now_s: float) -> None: ...

    def resized(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        return ()

    def fair_s(self, job: JobRecord, share: Mapping[str, float]) -> float:
        return 0.0


def _run(job: JobRecord) -> Run:
    assert job.run is not None  # asked only about jobs with a run
    return job.run


def parse_events(stream: str) -> list[dict[str, Any]]:
    """Of a stream of server-sent events."""
    return [json.loads(line[5:]) for line in stream.splitlines() if line.startswith("data:")]
