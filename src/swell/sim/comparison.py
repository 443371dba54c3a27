"""Several policies on the same jobs, as one JSON document: figures, jobs, and who had which GPUs when.

The dashboard's Simulate view and the page of `swell sim report` draw it. Times are seconds from the beginning.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import msgspec

from swell.core.errors import SwellError
from swell.core.events import Event, RunEnded
from swell.core.resources import Node
from swell.core.snapshot import Options
from swell.core.state import JobRecord, State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.ports import SpeedBook
from swell.sim.cluster import parse_cluster
from swell.sim.forecast import run_forward
from swell.sim.generate import Recipe, generate
from swell.sim.lanes import Span, Watch
from swell.sim.metrics import JobRow, summary, utilisation
from swell.sim.simulate import Case, Lanes, Outcome, scenes, simulate
from swell.sim.swell_workloads import write_jobs

LANES = 20_000
"""Runs of one simulation that are drawn; of more, the first."""
JOBS = 5_000
"""Of one simulation that are listed; of more, the first."""
ROUND_S = 3
"""Digits after the point: milliseconds."""
SUFFIXES = (".yaml", ".yml", ".json", ".jsonl", ".log", ".csv")
"""Endings by which the format of a file is known; all others are read as CSV."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A job under one policy."""

    job: int
    name: str
    state: str
    submitted_s: float
    started_s: float | None
    ended_s: float
    jct_s: float
    gpu_s: float
    restarts: int


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """One policy."""

    policy: str
    figures: Mapping[str, object]
    jobs: Sequence[Shown]
    spans: Sequence[Span]
    truncated: bool = False


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    gpus: Sequence[str]  # their types


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    workload: str
    machines: Sequence[Machine]
    runs: Sequence[Simulated]


def encoded(comparisons: Sequence[Comparison]) -> bytes:
    return msgspec.json.encode(comparisons)


# -- of workloads -----------------------------------------------------------------------------------------------------


def compared(outcomes: Sequence[Outcome]) -> list[Comparison]:
    """One for each workload, batch and load, in the order of the outcomes."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(_title(outcome), []).append(outcome)
    return [
        comparison(title, own[0].lanes.nodes, [_simulated(outcome) for outcome in own]) for title, own in groups.items()
    ]


def comparison(title: str, nodes: Sequence[Node], runs: Sequence[Simulated]) -> Comparison:
    machines = [Machine(name=node.name, gpus=[gpu.type for gpu in node.gpus]) for node in nodes]
    return Comparison(workload=title, machines=machines, runs=runs)


def _title(outcome: Outcome) -> str:
    case = outcome.case
    load = f", load {case.load:g}" if case.load != 1 else ""
    return f"{outcome.name}{', adaptive batches' if case.adaptive else ''}{load}"


def _simulated(outcome: Outcome) -> Simulated:
    return simulated(outcome.case.policy, outcome.summary, outcome.rows, outcome.lanes)


def simulated(policy: str, figures: Mapping[str, object], rows: Sequence[JobRow], lanes: Lanes) -> Simulated:
    return Simulated(
        policy=policy,
        figures=figures,
        jobs=[_shown(row) for row in rows[:JOBS]],
        spans=lanes.spans,
        truncated=lanes.truncated,
    )


def _shown(row: JobRow) -> Shown:
    return Shown(
        job=row.job,
        name=row.name,
        state=row.state,
        submitted_s=round(row.submitted_s, ROUND_S),
        started_s=None if row.started_s is None else round(row.started_s, ROUND_S),
        ended_s=round(row.ended_s, ROUND_S),
        jct_s=round(row.jct_s, ROUND_S),
        gpu_s=round(row.gpu_s, ROUND_S),
        restarts=row.restarts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A file that a user sent: job files with times, an event log, or a cluster trace as CSV."""

    name: str
    content: str


def of_workload(
    source: Recipe | Trace, cluster: str, policies: Sequence[str], placer: str, most_jobs: int
) -> list[Comparison]:
    """Every policy on what is generated or was sent. `cluster` as `parse_cluster` reads it; empty: one that fits."""
    with tempfile.TemporaryDirectory(prefix="swell-simulate-") as folder:
        path, name = _written(source, Path(folder))
        case = Case(workload=path, name=name, policy="", placer=placer, cluster=cluster, lanes=LANES)
        try:
            jobs = sum(len(scene.workload.arrivals) for scene in scenes(case))
            if jobs > most_jobs:
                raise SwellError(f"{name} has {jobs:,} jobs; here at most {most_jobs:,} are simulated: `swell sim run`")
            outcomes = [simulate(replace(case, policy=policy)) for policy in policies]
        except SwellError as error:
            raise SwellError(str(error).replace(str(path), name)) from error
    if not any(outcome.rows for outcome in outcomes):
        raise SwellError(f"no job of {name} could run on {cluster or 'this cluster'}: each needs more GPUs than it has")
    return compared(outcomes)


def _written(source: Recipe | Trace, folder: Path) -> tuple[Path, str]:
    """Where it is, and its name for people."""
    if isinstance(source, Recipe):
        path = folder / "generated.yaml"
        write_jobs(generate(source), path)
        return path, f"{source.jobs} generated jobs (seed {source.seed})"
    sent = PurePosixPath(source.name)
    path = folder / f"sent{sent.suffix if sent.suffix in SUFFIXES else '.csv'}"
    path.write_text(source.content, encoding="utf-8")
    return path, sent.stem[:80] or "the file"


# -- of the present queue ---------------------------------------------------------------------------------------------


def of_queue(
    state: State, book: SpeedBook, options: Options, now_s: float, policies: Sequence[str], placer: str
) -> list[Comparison]:
    """The jobs there are, from now on, under each policy; as expected, without further submissions."""
    if not state.active:
        raise SwellError("no job runs or waits; simulate a generated workload instead")
    nodes = sorted((node for node in state.nodes.values() if node.gpus), key=lambda node: node.name)
    runs = [_followed(state, book, options, now_s, policy, placer) for policy in policies]
    return [comparison("the present queue", nodes, runs)]


def _followed(state: State, book: SpeedBook, options: Options, now_s: float, policy: str, placer: str) -> Simulated:
    watch, ends = Watch(LANES), _Ends(state, now_s)
    watch.begin(state)
    same = policy == state.policy
    begun = state if same else replace(state, policy_memory={})
    chosen = options if same else replace(options, policy={})
    ahead = run_forward(begun, book, policy_named(policy), placer_named(placer), chosen, now_s, observers=(watch, ends))
    rows = sorted(ends.rows, key=lambda row: row.job)
    gpus = sum(len(node.gpus) for node in state.nodes.values())
    figures = {
        **summary([replace(row, policy=policy) for row in rows], ""),
        "unfinished": len(state.active) - len(rows),
        "utilisation": utilisation(rows, gpus),
    }
    spans = tuple(_from_now(span, now_s) for span in watch.spans() if span.to_s is None or span.to_s > now_s)
    return simulated(policy, figures, rows, Lanes(spans=spans, truncated=ahead.until_s is not None))


@dataclass(slots=True)
class _Ends:
    """Observes a future and makes a row of each job that ends in it, counted from now."""

    before: State
    now_s: float
    rows: list[JobRow] = field(default_factory=list)

    def __call__(self, state: State, event: Event) -> None:
        if isinstance(event, RunEnded) and state.jobs[event.run.job].ended:
            self.rows.append(self._row(state.jobs[event.run.job], self.before.jobs[event.run.job]))

    def _row(self, job: JobRecord, was: JobRecord) -> JobRow:
        assert job.ended_s is not None  # it has ended
        ended_s = job.ended_s - self.now_s
        started_s = 0.0 if was.holding else self._start_s(job, was)
        return JobRow(
            workload="the present queue",
            policy="",
            job=job.id,
            name=job.spec.name,
            family=job.spec.family,
            state=str(job.state),
            submitted_s=0.0,
            started_s=started_s,
            ended_s=ended_s,
            jct_s=ended_s,
            restarts=job.attempts - was.attempts,
            resizes=job.resizes - was.resizes,
            preemptions=job.preemptions - was.preemptions,
            migrations=job.migrations - was.migrations,
            gpu_s=max(0.0, job.gpu_s - was.gpu_s),
            rho=0.0,
        )

    def _start_s(self, job: JobRecord, was: JobRecord) -> float | None:
        """When it first runs, if it had not run before; else the start of its last run."""
        first = job.first_started_s if was.first_started_s is None else job.run.started_s if job.run else None
        return None if first is None else max(0.0, first - self.now_s)


def _from_now(span: Span, now_s: float) -> Span:
    def since(at_s: float | None) -> float | None:
        return None if at_s is None else max(0.0, at_s - now_s)

    return msgspec.structs.replace(
        span,
        from_s=max(0.0, span.from_s - now_s),
        to_s=since(span.to_s),
        started_s=since(span.started_s),
        stop_s=since(span.stop_s),
    )


def size_of(cluster: str) -> int:
    """GPUs of a cluster by name. Raises `SwellError`."""
    return sum(len(node.gpus) for node in parse_cluster(cluster))
