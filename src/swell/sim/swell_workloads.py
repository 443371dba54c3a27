"""Workloads in Swell's own formats: job files with arrival times, and the event log of a live daemon.

A job file for the simulator is a job file with three more fields, as many jobs as one likes:

    - at: 10m           # after the start; 0 if unset
      takes: 2h         # on the GPUs it asks for; else estimated time, else an hour
      silent: true      # it reports nothing before it ends; false if unset
      command: python train.py
      gpus: {min: 1, max: 8}

An event log is what `swell events --json --after 0` prints: one event per line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from swell.core.errors import SwellError
from swell.core.job import JobSpec, Preemptible
from swell.jobfile.expand import expand
from swell.jobfile.problems import JobFileError
from swell.jobfile.read import read_documents
from swell.jobfile.units import parse_duration_s
from swell.sim.duration_world import Scaling, scaling_of
from swell.sim.workload import Arrival, Workload

DEFAULT_TAKES_S = 3600.0


def read_jobs(path: Path) -> Workload:
    """Job files with `at` and `takes`."""
    arrivals: list[Arrival] = []
    for number, document in enumerate(read_documents(path.read_bytes()), start=1):
        at_s = _duration_s(document, "at", path, number) or 0.0
        takes_s = _duration_s(document, "takes", path, number)
        silent = _flag(document, "silent", path, number)
        for spec in _expanded(document, path, number):
            duration_s = takes_s if takes_s is not None else spec.estimated_s or DEFAULT_TAKES_S
            # A simulated job has its checkpoints unless its file says otherwise.
            able = replace(spec, uses_library=True) if spec.preemptible != "never" else spec
            truth = {"duration_s": duration_s, **({"silent": 1.0} if silent else {})}
            arrivals.append(Arrival(at_s=at_s, spec=able, truth=truth))
    return Workload(name=path.stem, arrivals=tuple(arrivals)).sorted()


def _expanded(document: dict[str, Any], path: Path, number: int) -> list[JobSpec]:
    try:
        return expand(document)
    except JobFileError as error:
        raise SwellError(f"{path}, job {number}, {error}") from error


def _duration_s(document: dict[str, Any], field: str, path: Path, number: int) -> float | None:
    value = document.pop(field, None)
    if value is None:
        return None
    try:
        return parse_duration_s(value)
    except ValueError as error:
        raise SwellError(f"{path}, job {number}, {field}: {error}") from error


def _flag(document: dict[str, Any], field: str, path: Path, number: int) -> bool:
    value = document.pop(field, False)
    if not isinstance(value, bool):
        raise SwellError(f"{path}, job {number}, {field}: {value!r} is neither true nor false")
    return value


def write_jobs(workload: Workload, path: Path) -> None:
    """The same format again. Only what the simulator reads is kept."""
    documents = [_document(arrival) for arrival in workload.arrivals]
    path.write_text(yaml.safe_dump(documents, sort_keys=False, width=200), encoding="utf-8")


def _document(arrival: Arrival) -> dict[str, object]:
    spec, request = arrival.spec, arrival.spec.gpus
    gpus: object = request.min
    if request.max > request.min:
        gpus = {"min": request.min, "max": request.max, "start": request.requested}
    return {
        "at": round(arrival.at_s, 1),
        "takes": round(arrival.truth["duration_s"], 1),
        "name": spec.name,
        "command": list(spec.command),
        "gpus": gpus,
        "launcher": str(spec.launcher),
        **({"family": spec.family} if spec.family else {}),
        **({"epochs": spec.epochs} if spec.epochs else {}),
        **({"estimated_hours": round(spec.estimated_s / 3600, 4)} if spec.estimated_s else {}),
        **({"silent": True} if arrival.truth.get("silent") else {}),
        **({"preemptible": str(spec.preemptible)} if spec.preemptible is Preemptible.NEVER else {}),
    }


@dataclass(slots=True)
class _Logged:
    spec: JobSpec
    at_s: float
    work_s: float = 0.0  # at speed 1
    since_s: float = 0.0
    gpus: int = 0
    nodes: int = 1
    running: bool = False


def read_log(path: Path) -> Workload:
    """Jobs of an event log that have run. How long each takes is what its runs did, put together."""
    jobs: dict[int, _Logged] = {}
    for event in _events(path):
        if event.get("type") == "JobSubmitted":
            jobs[event["job"]] = _Logged(_spec(event["spec"]), float(event["at_s"]))
        elif (job := jobs.get(event.get("job", -1))) is not None:
            _happened(job, event)
    first_s = min((job.at_s for job in jobs.values()), default=0.0)
    arrivals = (_arrival(job, first_s) for job in jobs.values() if job.work_s > 0)
    return Workload(name=path.stem, arrivals=tuple(arrivals)).sorted()


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise SwellError(
                    f"{path}, line {number} is not an event ({error}); write it with events --json"
                ) from None


def _spec(view: Mapping[str, Any]) -> JobSpec:
    known = {name: view[name] for name in JobSpec.__dataclass_fields__ if name in view}
    return msgspec.convert(known, JobSpec, strict=False)


def _happened(job: _Logged, event: Mapping[str, Any]) -> None:
    kind, at_s = event["type"], float(event["at_s"])
    if kind == "RunPlanned":
        parts: Sequence[Mapping[str, Any]] = event["allocation"]["parts"]
        job.gpus, job.nodes, job.running = sum(len(part["gpus"]) for part in parts), len(parts), False
    elif kind in ("RunStarted", "TrainingBegan"):
        job.since_s, job.running = at_s, True
    elif kind == "RunEnded" and job.running:
        job.work_s += max(0.0, at_s - job.since_s) * _scaling(job).rate(job.gpus, job.nodes, "")
        job.running = False


def _scaling(job: _Logged) -> Scaling:
    return scaling_of(max(1, job.spec.gpus.max))


def _arrival(job: _Logged, first_s: float) -> Arrival:
    asked = job.spec.gpus.requested
    duration_s = job.work_s / _scaling(job).rate(asked, 1, "")
    return Arrival(
        at_s=job.at_s - first_s,
        spec=replace(job.spec, depends_on=(), after_any=(), after_failure=()),
        truth={"duration_s": duration_s},
    )
