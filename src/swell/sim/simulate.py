"""One simulation from start to end, as a value: what to run (`Case`) and what came out (`Outcome`).

`cli.sim`, `sim.simulate_many` and the benchmarks call it. A case is plain data, so that many run side by side in
processes; the outcome depends on the case alone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from swell.core.errors import SwellError
from swell.core.resources import Node
from swell.core.snapshot import Options
from swell.placement.registry import DEFAULT_PLACER, placer_named
from swell.policy.registry import policy_named
from swell.ports import SpeedBook
from swell.sim.checkpoints import Checkpoints
from swell.sim.clairvoyant import ClairvoyantBook
from swell.sim.cluster import gpus_by_type, parse_cluster, with_types
from swell.sim.duration_world import Durations, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.lanes import Span, Watch
from swell.sim.metrics import JobRow, Recorder, summary, utilisation
from swell.sim.node_failures import failures
from swell.sim.noise import Noise
from swell.sim.pollux_workloads import read_pollux
from swell.sim.profiles import applications, product
from swell.sim.swell_workloads import read_jobs, read_log
from swell.sim.traces import STYLES, cluster_for, first_line, read_trace
from swell.sim.training_world import Training
from swell.sim.workload import Workload, at_load, drawn
from swell.sim.world import World
from swell.speed.book import Book

PUBLISHED_CLUSTER = "16x4"
"""What the measured workloads were made for."""

OptionValue = float | int | str | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    workload: Path
    policy: str
    cluster: str = ""  # empty: the published one for measured workloads, else one that fits
    name: str = ""  # of the workload; empty: its file's
    format: str = "auto"
    profiles: Path | None = None
    placer: str = DEFAULT_PLACER
    interval_s: float = 60.0
    restart_s: float = 30.0
    checkpoint_every_s: float = 0.0  # runs save only so often; 0: wherever they are asked to stop
    charge_unsaved: bool = True  # False: as if every run could stop at once without losing work
    adaptive: bool = False
    elastic: float = 0.0  # jobs of a trace may get up to this many times the GPUs they asked for; 0: exactly those
    clairvoyant: bool = False
    load: float = 1.0
    draw: int = 0  # seed by which jobs and times are drawn anew from the workload; 0: as they are
    seed: int = 0
    noise: Noise = field(default_factory=Noise)
    failure_hours: float = 0.0  # mean time between two failures of a node; 0: they never fail
    policy_options: Mapping[str, OptionValue] = field(default_factory=dict)
    options: Options = field(default_factory=Options)  # of decisions in general
    lanes: int = 0  # how many runs, from the first on, are kept for pictures of GPUs over time

    @property
    def kind(self) -> str:
        return format_of(self.workload) if self.format == "auto" else self.format

    @property
    def batch(self) -> str:
        return "adaptive" if self.adaptive else "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Who had which GPUs when; of the first virtual cluster, where a trace has several."""

    nodes: tuple[Node, ...] = ()
    spans: tuple[Span, ...] = ()
    truncated: bool = False  # there were more runs, or more virtual clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    case: Case
    name: str  # of the workload
    summary: Mapping[str, object]
    rows: tuple[JobRow, ...]
    held: tuple[tuple[float, int, int], ...]  # (time, job, GPUs from then on)
    gpus: int  # in the cluster
    lanes: Lanes = field(default_factory=lambda: Lanes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What arrives where, how the world answers, and what policies know of it."""

    workload: Workload
    nodes: tuple[Node, ...]
    world: World
    book: SpeedBook


def simulate(case: Case) -> Outcome:
    """Run one case; a trace of several virtual clusters is simulated one after the other and summed up.

    Only `wall_s` and `cpu_s` depend on the machine."""
    began, began_cpu = time.perf_counter(), time.process_time()
    name = case.name or case.workload.name.partition(".")[0]
    rows: list[JobRow] = []
    held: list[tuple[float, int, int]] = []
    lanes: Lanes | None = None
    gpus = events = passes = unfinished = 0
    for scene in _kept(scenes(case)):
        share = gpus_by_type(scene.nodes)
        recorder = Recorder(world=scene.world, share=share, interval_s=case.interval_s, first_job=len(rows))
        workload = at_load(drawn(scene.workload, case.draw), case.load)
        faults = failures(scene.nodes, workload, case.failure_hours, case.seed)
        setup = replace(setup_of(case, scene.nodes), faults=faults)
        watch = Watch(case.lanes if lanes is None else 0)
        observers = (recorder, watch) if watch.most else (recorder,)
        simulation = Simulation(setup, scene.world, scene.book, observers)
        simulation.run(workload)
        lanes = _lanes(lanes, scene, watch, simulation)
        rows += recorder.rows(name, case.policy)
        held += recorder.held
        gpus += sum(recorder.share.values())
        events, passes = events + simulation.events, passes + simulation.passes
        unfinished += len(simulation.state.active) + simulation.refused
    figures = {
        **summary(rows, case.batch),
        "unfinished": unfinished,
        "utilisation": utilisation(rows, gpus),
        "clairvoyant": case.clairvoyant,
        "load": case.load,
        "draw": case.draw,
        "checkpoint_every_s": case.checkpoint_every_s,
        "events": events,
        "passes": passes,
        "wall_s": round(time.perf_counter() - began, 3),
        "cpu_s": round(time.process_time() - began_cpu, 3),
    }
    return Outcome(
        case=case,
        name=name,
        summary=figures,
        rows=tuple(rows),
        held=tuple(held),
        gpus=gpus,
        lanes=lanes or Lanes(),
    )


def _lanes(before: Lanes | None, scene: Scene, watch: Watch, simulation: Simulation) -> Lanes:
    if before is not None:
        return replace(before, truncated=bool(before.spans))
    watch.end(simulation.state)
    return Lanes(nodes=scene.nodes, spans=tuple(watch.spans()), truncated=watch.truncated)


def _kept(scenes: Iterable[Scene]) -> Iterator[Scene]:
    """What was read stays to the end, so the garbage collector need not look through it again and again."""
    try:
        for scene in scenes:
            gc.freeze()
            yield scene
    finally:
        gc.unfreeze()


MEASURED = ("pollux", "sia")
FORMATS = ("auto", *MEASURED, "jobs", "log", *STYLES)


def format_of(path: Path) -> str:
    """What a file holds, by its ending and its first line."""
    if path.suffix in (".yaml", ".yml", ".json"):
        return "jobs"
    if path.suffix in (".jsonl", ".log"):
        return "log"
    header = first_line(path).strip().split(",")
    if "application" in header:
        return "pollux"
    for style, columns in STYLES.items():
        if columns.submitted in header and columns.gpus in header:
            return style
    raise SwellError(f"{path} is in none of the formats {', '.join(FORMATS[1:])}; say which with --format")


def scenes(case: Case) -> Iterator[Scene]:
    """One, or one a virtual cluster of a trace."""
    kind = case.kind
    if kind in MEASURED:
        yield _measured_scene(case)
    elif kind in STYLES:
        for workload in read_trace(case.workload, kind, elastic=case.elastic):
            yield _duration_scene(case, workload)
    else:
        yield _duration_scene(case, read_jobs(case.workload) if kind == "jobs" else read_log(case.workload))


def _measured_scene(case: Case) -> Scene:
    nodes = with_types(parse_cluster(case.cluster or PUBLISHED_CLUSTER), product)
    types = gpus_by_type(nodes)
    per_node = {t: max(sum(gpu.type == t for gpu in node.gpus) for node in nodes) for t in types}
    if case.profiles is None:
        raise SwellError("measured workloads need the profiles of their applications: add --profiles DIR")
    apps = applications(case.profiles)
    workload = read_pollux(case.workload, apps, adaptive=case.adaptive, gpus=types)
    world = Training(
        apps,
        restart_s=case.restart_s,
        per_node=per_node,
        noise=case.noise,
        seed=case.seed,
        checkpoints=_checkpoints(case),
    )
    book = ClairvoyantBook(world, per_node) if case.clairvoyant else Book()
    return Scene(workload=workload, nodes=nodes, world=world, book=book)


def _duration_scene(case: Case, workload: Workload) -> Scene:
    nodes = parse_cluster(case.cluster or cluster_for(workload))
    per_node = max(len(node.gpus) for node in nodes)
    world = Durations(
        restart_s=case.restart_s, per_node=per_node, noise=case.noise, seed=case.seed, checkpoints=_checkpoints(case)
    )
    book = TrueDurations(world) if case.clairvoyant else Book()
    return Scene(workload=workload, nodes=nodes, world=world, book=book)


def _checkpoints(case: Case) -> Checkpoints:
    return Checkpoints(every_s=case.checkpoint_every_s)


def setup_of(case: Case, nodes: tuple[Node, ...]) -> Setup:
    return Setup(
        nodes=nodes,
        policy=policy_named(case.policy),
        placer=placer_named(case.placer),
        options=replace(case.options, policy=case.policy_options),
        interval_s=case.interval_s,
        quiet_rounds=case.kind not in STYLES,  # months of a trace have too many
        restart_cost_s=case.restart_s,
        charge_unsaved=case.charge_unsaved,
        seed=case.seed,
    )
