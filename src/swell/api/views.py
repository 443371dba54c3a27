"""Records as the API shows them. Names here are public and stable: scripts read them. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
from msgspec.structs import replace
from typing_extensions import TypedDict

from swell.core.account_events import TokenIssued
from swell.core.budgets import service_s
from swell.core.contact import sentence
from swell.core.events import Event, JobSubmitted, StopWhy
from swell.core.idle import GpuUse
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import wait_s
from swell.core.resources import Allocation, Gpu, GpuKey, Node, Part, Ssh, fingerprint
from swell.core.state import JobRecord, JobState, Run, State
from swell.jobfile.written import document_of
from swell.plan.idle import Idle
from swell.ports import Stored
from swell.sim.lanes import Span
from swell.speed.describe import DescribedBook

HIDDEN = "***"
MAX_CURVE = 128
"""Points of a curve that are shown."""


class GpusView(TypedDict):
    held: int
    min: int
    max: int
    share: bool


class ProgressView(TypedDict):
    """`unit` is what the three numbers count: epoch, step, token or sample."""

    unit: str
    epochs_done: int
    epochs_saved: int  # of those, the ones that a checkpoint covers
    epochs_total: int
    fraction: float | None


class IdentityView(TypedDict):
    """Which job it is, whose, and in which state."""

    id: int
    name: str
    user: str
    team: str
    state: str
    paused: bool
    preparing: str
    priority: int
    batch: str


class IdleView(TypedDict):
    """GPUs, of those it holds, that have been idle since then."""

    gpus: int
    since_s: float


class PlaceView(TypedDict):
    """What it has and may have, how far it is, and what comes next."""

    gpus: GpusView
    progress: ProgressView
    eta_s: list[float] | None
    starts_s: list[float] | None
    where: list[str]
    why: str
    idle: IdleView | None


class TimesView(TypedDict):
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    waited_s: float
    ran_s: float
    gpu_s: float  # GPU-seconds that it has had, up to now
    lost_s: float
    restarts_s: float | None  # what stopping and starting again has cost it; null: never measured


class CountsView(TypedDict):
    attempts: int
    failures: int
    kills: int
    preemptions: int
    resizes: int
    migrations: int


class OutcomeView(TypedDict):
    """Its latest run, and how that ended."""

    run: str | None
    exit_reason: str | None
    exit_code: int | None
    message: str
    files: str


class JobView(IdentityView, PlaceView, TimesView, CountsView, OutcomeView):
    """A line of the list: flat, as scripts read it."""


def job_view(
    record: JobRecord,
    *,
    why: str,
    eta_s: list[float] | None,
    starts_s: list[float] | None,
    now_s: float,
    idle: Idle | None = None,
) -> JobView:
    gpus = record.spec.gpus
    place = PlaceView(
        gpus=GpusView(held=_held(record), min=gpus.min, max=gpus.max, share=gpus.share),
        progress=_progress(record),
        eta_s=eta_s,
        starts_s=starts_s,
        where=places(record.allocation) if record.allocation else [],
        why=f"{idle.words(now_s)}; {why}" if idle else why,
        idle=IdleView(gpus=idle.gpus, since_s=idle.since_s) if idle else None,
    )
    return {**_identity(record), **place, **_times(record, now_s), **_counts(record), **_outcome(record)}


def _identity(record: JobRecord) -> IdentityView:
    run, spec = record.run, record.spec
    return IdentityView(
        id=record.id,
        name=spec.name,
        user=spec.user,
        team=spec.team,
        state=record.state,
        paused=record.paused,
        preparing=run.preparing if run and record.holding else "",
        priority=record.priority,
        batch=record.batch,
    )


def _times(record: JobRecord, now_s: float) -> TimesView:
    return TimesView(
        submitted_s=record.submitted_s,
        started_s=record.first_started_s,
        ended_s=record.ended_s,
        waited_s=record.waited_s + _current_wait_s(record, now_s),
        ran_s=ran_s(record, now_s),
        gpu_s=gpu_s(record, now_s),
        lost_s=record.lost_s,
        restarts_s=_restarts_s(record),
    )


def _counts(record: JobRecord) -> CountsView:
    return CountsView(
        attempts=record.attempts,
        failures=record.failures,
        kills=record.kills,
        preemptions=record.preemptions,
        resizes=record.resizes,
        migrations=record.migrations,
    )


def _outcome(record: JobRecord) -> OutcomeView:
    run = record.run
    return OutcomeView(
        run=str(run.id) if run else None,
        exit_reason=run.exit_reason if run else None,
        exit_code=run.exit_code if run else None,
        message=record.message,
        files=record.spec.files,
    )


def public_line(line: JobView) -> JobView:
    """What every user may know of a job: who has what, and why others wait. Not what it printed, nor its files."""
    ended = line["ended_s"] is not None
    return {**line, "message": "", "files": "", "why": line["state"] if ended else _public_why(line)}


def _public_why(line: JobView) -> str:
    """Without what somebody wrote when they cancelled it."""
    before, cancelled, _ = line["why"].partition(f"{StopWhy.CANCELLED}: ")
    return f"{before}{StopWhy.CANCELLED}" if cancelled and line["state"] == JobState.STOPPING else line["why"]


def public_span(span: Span) -> Span:
    """As `public_line`."""
    return replace(span, stop_reason="") if span.stop == StopWhy.CANCELLED else span


def public_event(view: dict[str, Any]) -> dict[str, Any]:
    """That something happened to a job, and when."""
    return {name: view[name] for name in ("seq", "type", "at_s", "job", "run") if name in view}


def _held(record: JobRecord) -> int:
    return record.allocation.gpus if record.allocation else 0


def _progress(record: JobRecord) -> ProgressView:
    total = record.epochs_total or record.spec.epochs
    fraction = min(1.0, record.epochs_done / total) if total else None
    return ProgressView(
        unit=record.unit,
        epochs_done=record.epochs_done,
        epochs_saved=record.epochs_saved,
        epochs_total=total,
        fraction=fraction,
    )


def _current_wait_s(record: JobRecord, now_s: float) -> float:
    return 0.0 if record.holding or record.ended else wait_s(record, now_s)


def ran_s(record: JobRecord, now_s: float) -> float:
    """Over all attempts, up to now."""
    run = record.run
    current_s = max(0.0, now_s - run.started_s) if run and run.started_s is not None and record.holding else 0.0
    return record.ran_s + current_s


def gpu_s(record: JobRecord, now_s: float) -> float:
    """GPU-seconds over all attempts, up to now."""
    run = record.run
    return record.gpu_s + (service_s(run, now_s) if run and run.started_s is not None and record.holding else 0.0)


def _restarts_s(record: JobRecord) -> float | None:
    """The measured cost of one, times how often it was."""
    return None if record.restart_cost_s is None else record.restart_cost_s * max(0, record.attempts - 1)


def places(allocation: Allocation) -> list[str]:
    """`node:0,1` for each node; `node` alone for a job without GPUs."""
    return [f"{p.node}:{','.join(map(str, p.gpus))}" if p.gpus else p.node for p in allocation.parts]


def spec_view(spec: JobSpec) -> dict[str, Any]:
    view = msgspec.to_builtins(spec)
    assert isinstance(view, dict)
    view["env"] = {name: HIDDEN if name in spec.secrets else value for name, value in spec.env.items()}
    return view


def detail_view(record: JobRecord, line: JobView) -> dict[str, Any]:
    return {
        **line,
        "spec": spec_view(record.spec),
        "job_file": document_of(record.spec),
        "metrics": dict(record.metrics),
        "uses_library": record.uses_library,
        "may_be_stopped": record.may_be_stopped,
        "outputs": msgspec.to_builtins(record.outputs) if record.outputs else None,
        "files_on": record.files_on,
        "copy": msgspec.to_builtins(record.copy) if record.copy else None,
        "rewound": record.rewound,
        "restart_cost_s": record.restart_cost_s,
        "gpu_memory_mib": record.gpu_memory_mib,
    }


def run_view(run: Run) -> dict[str, Any]:
    view: dict[str, Any] = {f.name: getattr(run, f.name) for f in fields(run) if f.name != "allocation"}
    view["id"] = str(run.id)
    view["job"] = run.id.job
    view["attempt"] = run.id.attempt
    view["gpus"] = run.allocation.gpus
    view["gpu_type"] = run.allocation.gpu_type
    view["where"] = places(run.allocation)
    view["stop"] = msgspec.to_builtins(run.stop) if run.stop else None
    view["withdrawn"] = msgspec.to_builtins(run.withdrawn) if run.withdrawn else None
    return view


def speed_view(record: JobRecord, book: DescribedBook, per_node: Mapping[str, int]) -> dict[str, Any]:
    """One curve for each type of GPU: [GPUs, speed] for the sizes the job may have, packed onto as few nodes as hold
    them; 1 is one GPU of the reference type. `points` were measured."""
    found = book.describe(record, per_node)
    speed = book.speed(record, per_node)
    curves = {
        gpu_type: [(n, speed.rate(n, -(-n // max(1, most)), gpu_type)) for n in _sizes(record)]
        for gpu_type, most in per_node.items()
    }
    return {
        "family": found.family,
        "reference_type": found.reference_type,
        "source": found.source,
        "confidence": found.confidence,
        "epoch_1_s": found.epoch_1_s,
        "curves": curves,
        "points": msgspec.to_builtins(found.points),
        "remaining_s": [found.remaining_low_s, found.remaining_high_s] if found.remaining.known else None,
    }


def _sizes(record: JobRecord) -> list[int]:
    sizes = [n for n in record.spec.gpus.sizes() if n > 0]
    return sizes[:: -(-len(sizes) // MAX_CURVE)] if sizes else [1]


def node_views(state: State, use: Mapping[GpuKey, GpuUse], now_s: float) -> list[dict[str, Any]]:
    """Nodes by name, each GPU with the jobs that hold it."""
    held: dict[GpuKey, list[int]] = {}
    parts: dict[str, list[Part]] = {}
    for job in state.active:
        allocation = state.jobs[job].allocation
        for part in allocation.parts if allocation else ():
            parts.setdefault(part.node, []).append(part)
            for gpu in part.gpus:
                held.setdefault((part.node, gpu), []).append(job)
    return [
        {
            **_node_view(node, held, use, sentence(state, node, now_s)),
            "cpus_held": sum(part.cpus for part in parts.get(node.name, ())),
            "memory_held_mib": sum(part.memory_mib for part in parts.get(node.name, ())),
        }
        for _, node in sorted(state.nodes.items())
    ]


def _node_view(
    node: Node, held: Mapping[GpuKey, list[int]], use: Mapping[GpuKey, GpuUse], contact_why: str
) -> dict[str, Any]:
    keys = [(node.name, gpu.index) for gpu in node.gpus]
    gpus = [_gpu_view(gpu, held.get(key, []), use.get(key)) for gpu, key in zip(node.gpus, keys, strict=True)]
    usable = {gpu.index for gpu in node.usable_gpus()}
    return {
        "name": node.name,
        "condition": node.condition,
        "contact": node.contact,
        "why": "; ".join(text for text in (contact_why, node.closed, node.why) if text),
        "address": node.address,
        "executor": node.executor,
        "cpus": node.cpus,
        "memory_mib": node.memory_mib,
        "labels": dict(node.labels),
        "no_containers": node.no_containers,
        "rack": node.rack,
        "realm": node.realm,
        "contact_s": node.contact_s,
        "lease_s": node.lease_s,
        "boot_id": node.boot_id,
        "ssh": {**_fields(node.ssh), "fingerprint": fingerprint(node.ssh.host_key)} if node.ssh else None,
        "gpus": gpus,
        "gpus_total": len(gpus),
        "gpus_free": sum(1 for gpu in gpus if not gpu["jobs"] and gpu["index"] in usable),
    }


def _gpu_view(gpu: Gpu, jobs: list[int], use: GpuUse | None) -> dict[str, Any]:
    """Utilisation and memory are null where they are not measured."""
    percent, used_mib = (use.percent, use.memory_mib) if use else (None, None)
    return {**_fields(gpu), "jobs": jobs, "utilisation_percent": percent, "memory_used_mib": used_mib}


def _fields(value: Gpu | Ssh) -> dict[str, Any]:
    view = msgspec.to_builtins(value)
    assert isinstance(view, dict)
    return view


def event_view(stored: Stored) -> dict[str, Any]:
    """Flat: number, kind, then the event's own fields; a run is written 7.2."""
    return {"seq": stored.seq, "type": type(stored.event).__name__, **_event_fields(stored.event)}


def _event_fields(event: Event) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for f in fields(event):
        value = getattr(event, f.name)
        if isinstance(value, RunId):
            view["run"] = str(value)
            view["job"] = value.job
        else:
            view[f.name] = msgspec.to_builtins(value)
    if isinstance(event, JobSubmitted):
        view["spec"] = spec_view(event.spec)
    if isinstance(event, TokenIssued):
        del view["digest"]
    return view
