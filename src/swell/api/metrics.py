"""GET /metrics for Prometheus: what happened (counters, histograms, since the start) and what is (gauges, at a scrape).

Labels are bounded: states, reasons, GPU types, machines (the first MAX_NODES) and, for gauges of single jobs, the
MAX_JOBS that hold the most GPUs. docs/reference/metrics.md describes each; a test holds the two together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest

from fastapi import APIRouter, Request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swell import __version__
from swell.api.port import Engine
from swell.core import events as ev
from swell.core.events import Event
from swell.core.idle import GpuUse
from swell.core.ids import JobId
from swell.core.resources import Allocation, Contact, NodeCondition
from swell.core.state import JobRecord, JobState, State, held_gpus
from swell.daemon.timing import PassTimes

router = APIRouter(include_in_schema=False)

MAX_NODES = 500
MAX_JOBS = 100
MAX_LABEL = 60
LONG_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400)
SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COST_S = (0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280)

disable_created_metrics()  # type: ignore[no-untyped-call]  # else one more series for each, of when we started

_ACTIONS = {("POST", "/v1/jobs"): "submit", ("POST", "/v1/jobs/cancel"): "cancel"}


@router.get("/metrics")
async def get_metrics(request: Request) -> Response:
    """In the text format of Prometheus. Opened by its own token (the file `metrics-token` in the daemon's home)."""
    metrics: Metrics = request.app.state.metrics
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


class Metrics:
    """One for each daemon. `happened` and `passed` are called by it."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self.registry = registry = CollectorRegistry()
        self._held: dict[JobId, Allocation] = {}  # by jobs that have not ended, to tell growth from moves
        self._submitted = Counter("swell_jobs_submitted", "Jobs accepted.", registry=registry)
        self._ended = Counter("swell_jobs_ended", "Jobs ended.", ["state"], registry=registry)
        self._removed = Counter("swell_jobs_removed", "Ended jobs taken out of the record.", registry=registry)
        self._planned = Counter("swell_runs_planned", "Runs given GPUs.", ["gpu_type"], registry=registry)
        self._run_ends = Counter("swell_runs_ended", "Runs ended.", ["reason"], registry=registry)
        self._stops = Counter("swell_stop_requests", "Runs asked to stop.", ["why"], registry=registry)
        self._preempted = Counter("swell_preemptions", "Runs stopped for other jobs.", ["gpu_type"], registry=registry)
        self._resized = Counter(
            "swell_resizes", "Jobs that grew or shrank.", ["direction", "gpu_type"], registry=registry
        )
        self._moved = Counter(
            "swell_migrations", "Jobs that went on on other machines.", ["gpu_type"], registry=registry
        )
        self._workers_moved = Counter(
            "swell_workers_migrated", "GPUs of jobs that moved.", ["gpu_type"], registry=registry
        )
        self._lost = Counter(
            "swell_lost_seconds", "Work thrown away by ends of runs, by how they ended.", ["reason"], registry=registry
        )
        self._epochs = Counter("swell_epochs", "Epochs reported by trainings.", registry=registry)
        self._waited = Histogram(
            "swell_job_wait_seconds", "From submission to the first GPUs.", buckets=LONG_S, registry=registry
        )
        self._completed = Histogram(
            "swell_job_completion_seconds", "From submission to completion.", buckets=LONG_S, registry=registry
        )
        self._cost = Histogram(
            "swell_resize_cost_seconds",
            "What stopping and starting again cost a training.",
            buckets=COST_S,
            registry=registry,
        )
        self._pass = Histogram("swell_pass_seconds", "A whole pass.", ["policy"], buckets=SHORT_S, registry=registry)
        self._policy = Histogram(
            "swell_policy_seconds",
            "Time to decide how many GPUs each job gets.",
            ["policy"],
            buckets=SHORT_S,
            registry=registry,
        )
        self._placement = Histogram(
            "swell_placement_seconds",
            "Time to decide which GPUs each job gets.",
            ["policy"],
            buckets=SHORT_S,
            registry=registry,
        )
        self.requests = Histogram(
            "swell_request_seconds",
            "Requests that change jobs, and all others.",
            ["action", "outcome"],
            buckets=SHORT_S,
            registry=registry,
        )
        registry.register(_Now(engine))

    def passed(self, times: PassTimes) -> None:
        self._pass.labels(times.policy).observe(times.whole_s)
        self._policy.labels(times.policy).observe(times.policy_s)
        self._placement.labels(times.policy).observe(times.placement_s)

    def happened(self, events: Sequence[Event]) -> None:
        state = self._engine().state
        for event in events:
            self._count(event, state)

    def _count(self, event: Event, state: State) -> None:
        match event:
            case ev.JobSubmitted():
                self._submitted.inc()
            case ev.RunPlanned() | ev.RunResized():
                self._given(event, state.jobs.get(event.run.job))
            case ev.RunStopRequested():
                self._stop(event)
            case ev.RunEnded():
                self._run_ends.labels(event.reason).inc()
                self._lose(event, state.jobs.get(event.run.job))
                self._end(event.run.job, state)
            case ev.JobCancelled():
                self._end(event.job, state)
            case ev.JobRemoved():
                self._removed.inc()
            case ev.TrainingBegan():
                self._began(state.jobs.get(event.run.job))
            case ev.EpochEnded():
                self._epochs.inc(event.count)

    def _given(self, event: ev.RunPlanned | ev.RunResized, record: JobRecord | None) -> None:
        given, before = event.allocation, self._held.get(event.run.job)
        self._held[event.run.job] = given
        kind = given.gpu_type or "none"
        if isinstance(event, ev.RunPlanned):
            self._planned.labels(kind).inc()
            if event.run.attempt == 1 and record is not None:
                self._waited.observe(max(0.0, event.at_s - record.submitted_s))
        if before is None:
            return
        if before.gpus != given.gpus:
            self._resized.labels("grow" if given.gpus > before.gpus else "shrink", kind).inc()
        if set(before.nodes) != set(given.nodes):
            self._moved.labels(kind).inc()
            self._workers_moved.labels(kind).inc(max(1, given.gpus))

    def _stop(self, event: ev.RunStopRequested) -> None:
        self._stops.labels(event.why).inc()
        if event.why is ev.StopWhy.PREEMPTED:
            held = self._held.get(event.run.job)
            self._preempted.labels((held.gpu_type if held else "") or "none").inc()

    def _lose(self, event: ev.RunEnded, record: JobRecord | None) -> None:
        run = record.run if record is not None else None
        if run is not None and run.id == event.run:
            self._lost.labels(event.reason).inc(run.lost_s)

    def _end(self, job: JobId, state: State) -> None:
        record = state.jobs.get(job)
        if record is None or not record.ended:
            return
        self._held.pop(job, None)
        self._ended.labels(record.state).inc()
        if record.state is JobState.COMPLETED and record.ended_s is not None:
            self._completed.observe(max(0.0, record.ended_s - record.submitted_s))

    def _began(self, record: JobRecord | None) -> None:
        run = record.run if record is not None else None
        if run is not None and run.id.attempt > 1 and run.began_s is not None:
            self._cost.observe(max(0.0, run.began_s - run.planned_s + run.stop_cost_s))


class _Now(Collector):
    """What is, read from the state at a scrape."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        engine = self._engine()
        state, health = engine.state, engine.health()
        info = GaugeMetricFamily("swell_info", "Always 1.", labels=["version", "policy", "placer"])
        info.add_metric([__version__, state.policy, state.placer], 1)
        yield info
        yield _plain(
            "swell_degraded",
            "1 while something does not work: nothing can be written, or decided.",
            bool(health.get("degraded") or health.get("deciding")),
        )
        yield _plain("swell_last_event", "Number of the last event on disk.", _number(health.get("seq")))
        yield from _forecasts(health.get("forecast"))
        yield from _jobs(state)
        yield from _gpus(state)
        yield from _machines(state)
        yield from _use(engine)
        yield from _largest_jobs(state)


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _forecasts(accuracy: object) -> Iterator[Metric]:
    found = accuracy if isinstance(accuracy, dict) else {}
    yield _plain("swell_forecast_coverage_ratio", "Ends within the first interval.", _number(found.get("inside")))
    yield _plain("swell_forecast_jobs", "Ends that were forecast before.", _number(found.get("jobs")))
    yield _plain("swell_forecast_error_ratio", "Median error of the expected end.", _number(found.get("median_error")))


def _jobs(state: State) -> Iterator[Metric]:
    counts: dict[tuple[str, str], int] = {}
    cross: dict[str, int] = {}
    for job in state.active:
        record = state.jobs[job]
        kind = _type_of(record)
        name = "paused" if record.paused and record.state is JobState.QUEUED else record.state.value
        counts[name, kind] = counts.get((name, kind), 0) + 1
        if record.allocation is not None and len(record.allocation.parts) > 1:
            cross[kind] = cross.get(kind, 0) + 1
    found = GaugeMetricFamily("swell_jobs", "Jobs that have not ended.", labels=["state", "gpu_type"])
    for (name, kind), count in sorted(counts.items()):
        found.add_metric([name, kind], count)
    yield found
    across = GaugeMetricFamily("swell_jobs_cross_node", "Running jobs on several machines.", labels=["gpu_type"])
    for kind, count in sorted(cross.items()):
        across.add_metric([kind], count)
    yield across


def _type_of(record: JobRecord) -> str:
    """Of the GPUs it holds; of a waiting job the one type it accepts, `any` if it accepts several."""
    if record.allocation is not None and record.allocation.gpu_type:
        return record.allocation.gpu_type
    if record.spec.cpu_only:
        return "none"
    return record.spec.gpus.types[0] if len(record.spec.gpus.types) == 1 else "any"


def _gpus(state: State) -> Iterator[Metric]:
    used = held_gpus(state)
    totals: dict[str, list[int]] = {}
    for node in state.nodes.values():
        usable = {gpu.index for gpu in node.usable_gpus()} if node.schedulable else set()
        for gpu in node.gpus:
            sums = totals.setdefault(gpu.type, [0, 0, 0])
            busy = (node.name, gpu.index) in used
            sums[0] += 1
            sums[1] += busy
            sums[2] += not busy and gpu.index not in usable
    families = (
        GaugeMetricFamily("swell_gpus", "GPUs there are.", labels=["gpu_type"]),
        GaugeMetricFamily("swell_gpus_in_use", "GPUs that jobs hold.", labels=["gpu_type"]),
        GaugeMetricFamily("swell_gpus_unusable", "GPUs given to nobody, and why is on the node.", labels=["gpu_type"]),
    )
    for kind, sums in sorted(totals.items()):
        for family, value in zip(families, sums, strict=True):
            family.add_metric([kind], value)
    yield from families


def _machines(state: State) -> Iterator[Metric]:
    used = held_gpus(state)
    conditions = dict.fromkeys(map(str, NodeCondition), 0)
    contacts = dict.fromkeys(map(str, Contact), 0)
    total = GaugeMetricFamily("swell_node_gpus", "GPUs of a machine.", labels=["node"])
    busy = GaugeMetricFamily("swell_node_gpus_in_use", "GPUs of a machine that jobs hold.", labels=["node"])
    ready = GaugeMetricFamily("swell_node_ready", "1 while a machine takes jobs.", labels=["node"])
    for index, (name, node) in enumerate(sorted(state.nodes.items())):
        conditions[node.condition] += 1
        contacts[node.contact] += 1
        if index < MAX_NODES:
            label = [name[:MAX_LABEL]]
            total.add_metric(label, len(node.gpus))
            busy.add_metric(label, sum((name, gpu.index) in used for gpu in node.gpus))
            ready.add_metric(label, node.schedulable)
    found = GaugeMetricFamily("swell_nodes", "Machines by condition.", labels=["condition"])
    for condition, count in conditions.items():
        found.add_metric([condition], count)
    answering = GaugeMetricFamily("swell_nodes_contact", "Machines by whether they answer.", labels=["contact"])
    for contact, count in contacts.items():
        answering.add_metric([contact], count)
    yield from (found, answering, total, busy, ready)


def _use(engine: Engine) -> Iterator[Metric]:
    """Measured, by machine: one series per GPU would not be bounded."""
    busy = GaugeMetricFamily("swell_node_gpu_utilisation_ratio", "Mean of its GPUs, as measured.", labels=["node"])
    memory = GaugeMetricFamily("swell_node_gpu_memory_used_bytes", "Of all its GPUs, as measured.", labels=["node"])
    by_node: dict[str, list[GpuUse]] = {}
    for (node, _), use in sorted(engine.idle_gpus.use.items()):
        by_node.setdefault(node, []).append(use)
    for node, uses in list(by_node.items())[:MAX_NODES]:
        percents = [use.percent for use in uses if use.percent is not None]
        if percents:
            busy.add_metric([node[:MAX_LABEL]], sum(percents) / len(percents) / 100)
        memory.add_metric([node[:MAX_LABEL]], sum(use.memory_mib for use in uses) * float(1 << 20))
    idle = engine.idle_gpus.jobs()
    yield from (busy, memory)
    yield _plain("swell_gpus_idle", "GPUs that jobs hold and do not use.", sum(one.gpus for one in idle.values()))
    yield _plain("swell_jobs_idle", "Jobs that hold GPUs and do not use them.", len(idle))


def _largest_jobs(state: State) -> Iterator[Metric]:
    holding = (state.jobs[job] for job in state.active if state.jobs[job].allocation is not None)
    chosen = nlargest(MAX_JOBS, holding, key=lambda record: (_size(record), -record.id))
    labels = ["job", "name", "user"]
    gpus = GaugeMetricFamily("swell_job_gpus", "GPUs that a job holds; the largest jobs only.", labels=labels)
    progress = GaugeMetricFamily("swell_job_progress_ratio", "Part of its epochs that is done.", labels=labels)
    memory = GaugeMetricFamily("swell_job_gpu_memory_bytes", "Measured peak on one GPU.", labels=labels)
    for record in chosen:
        label = [str(record.id), record.spec.name[:MAX_LABEL], record.spec.user[:MAX_LABEL]]
        gpus.add_metric(label, _size(record))
        total = record.epochs_total or record.spec.epochs
        if total:
            progress.add_metric(label, min(1.0, record.epochs_done / total))
        if record.gpu_memory_mib:
            memory.add_metric(label, record.gpu_memory_mib * float(1 << 20))
    yield from (gpus, progress, memory)


def _size(record: JobRecord) -> int:
    return record.allocation.gpus if record.allocation is not None else 0


class Timed:
    """Middleware: how long requests take that submit, cancel or remove jobs, and all others together. Streams, which
    are open as long as somebody looks, do not count."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        outcome = "failed"
        lasting = False

        async def noting(message: Message) -> None:
            nonlocal outcome, lasting
            if message["type"] == "http.response.start":
                outcome = "ok" if message["status"] < 400 else "refused" if message["status"] < 500 else "failed"
                lasting = any(
                    name.lower() == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message["headers"]
                )
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if not lasting:
                took_s = time.perf_counter() - began_s
                self._metrics.requests.labels(_action(scope["method"], scope["path"]), outcome).observe(took_s)


def _action(method: str, path: str) -> str:
    known = _ACTIONS.get((method, path))
    if known:
        return known
    if path.startswith("/v1/jobs/"):
        if method == "DELETE":
            return "remove"
        if method == "POST" and path.endswith("/cancel"):
            return "cancel"
    if path.startswith("/v1/runs/"):
        return "report"
    return "other"
