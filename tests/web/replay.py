"""A cluster's history without a cluster: a simulated afternoon, or a week of made-up runs, behind the real API.

For pictures and for measuring how the lanes are drawn: what is shown happened in the simulator, with the daemon's own
decisions; nothing runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import uvicorn
from fastapi import FastAPI

from integration.api.conftest import TOKEN, FakeEngine
from swell.api.app import create_app
from swell.api.sessions import Holder
from swell.config import Config
from swell.core import events as ev
from swell.core.accounts import Way
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import Run
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.ports import PastRun
from swell.sim.duration_world import Durations
from swell.sim.engine import Setup, Simulation
from swell.sim.workload import Arrival, Workload
from swell.speed.book import Book

NAMES = (
    *("resnet50", "bert-base", "vit-large", "whisper", "unet-3d", "gpt-mini", "clip", "t5-small", "yolo", "wav2vec"),
    *("swin", "dlrm", "mamba", "nerf", "esm-fold", "diffusion", "llama-lora", "segformer", "convnext", "graphcast"),
)
USERS = ("ada", "kim", "noor", "li", "sam")
HOUR_S = 3600.0


def machines(count: int, gpus: int = 8, kind: str = "A100") -> tuple[Node, ...]:
    slots = tuple(Gpu(index=i, type=kind, memory_mib=81920) for i in range(gpus))
    return tuple(Node(name=f"gpu-{n + 1:02}", gpus=slots, cpus=64, memory_mib=512 * 1024) for n in range(count))


def afternoon(hours: float = 3.0, seed: int = 5) -> list[Event]:
    """What three machines of eight GPUs did for some hours up to now, under the swell policy."""
    rng = Random(seed)
    arrivals = tuple(_arrival(rng, index, hours) for index in range(int(10 * hours)))
    policy, placer = policy_named("swell"), placer_named("consolidated")
    seen: list[Event] = []
    setup = Setup(nodes=machines(3), policy=policy, placer=placer, until_s=hours * HOUR_S)
    simulation = Simulation(setup, Durations(restart_s=40.0), Book(), [lambda _, event: seen.append(event)])
    simulation.run(Workload(name="afternoon", arrivals=tuple(sorted(arrivals, key=lambda one: one.at_s))))
    shift = time.time() - hours * HOUR_S
    return [replace(event, at_s=event.at_s + shift) for event in seen if event.at_s <= hours * HOUR_S]


def _arrival(rng: Random, index: int, hours: float) -> Arrival:
    most = rng.choice((1, 2, 4, 4, 8, 8, 8, 16))
    spec = JobSpec(
        name=f"{NAMES[index % len(NAMES)]}{'-' + str(index // len(NAMES) + 1) if index >= len(NAMES) else ''}",
        command=("python", "train.py"),
        user=rng.choice(USERS),
        gpus=GpuRequest(min=1 if most <= 4 else 2, max=most, start=max(1, most // 2)),
        launcher=Launcher.PER_GPU,
        epochs=rng.choice((20, 40, 90)),
        uses_library=True,
        priority=10 if rng.random() < 0.15 else 0,
    )
    at_s = rng.random() ** 1.1 * 0.97 * hours * HOUR_S
    return Arrival(at_s=at_s, spec=spec, truth={"duration_s": 60 * rng.choice((12, 20, 35, 50, 80, 120))})


class Week(FakeEngine):
    """A week of runs of one GPU each, end to end on all lanes; the jobs themselves are forgotten."""

    def __init__(self, bars: int = 50_000, gpus: int = 64, days: float = 7.0) -> None:
        super().__init__()
        rng, now, nodes = Random(1), time.time(), machines(gpus // 8)
        self.record(*(ev.NodeObserved(node=node, at_s=now - days * 86400) for node in nodes))
        self.record(ev.PolicySet(name="fifo", placer="consolidated", at_s=now - days * 86400))
        length_s = days * 86400 * gpus / bars
        self.past = []
        for index in range(bars):
            lane, from_s = index % gpus, now - days * 86400 + index // gpus * length_s
            allocation = Allocation(parts=(Part(node=nodes[lane // 8].name, gpus=(lane % 8,)),), gpu_type="A100")
            ended_s = from_s + length_s * (0.6 + 0.39 * rng.random())
            run = Run(
                id=RunId(index + 1, 1),
                allocation=allocation,
                planned_s=from_s,
                started_s=from_s + 5,
                ended_s=ended_s,
                exit_reason=ev.ExitReason.FINISHED,
                reason="1 GPU",
            )
            held = ((from_s, allocation),)
            self.past.append(PastRun(run=run, name=f"job-{index + 1}", user=USERS[index % 5], held=held))

    async def runs_between(self, from_s: float, to_s: float, limit: int) -> list[PastRun]:
        return [past for past in self.past if past.run.planned_s < to_s and (past.run.ended_s or to_s) >= from_s][
            :limit
        ]


class Served:
    """What `Visit` needs of a daemon."""

    token = TOKEN

    def __init__(self, engine: FakeEngine, app: FastAPI, port: int) -> None:
        self.engine = engine
        self.app = app
        self.address = ("127.0.0.1", port)

    def post(self, path: str, body: object | None = None) -> dict[str, str]:
        assert path == "/v1/ui/codes"
        return {"code": self.app.state.sessions.new_code(Holder(Way.OWNER, ""))}


def engine_with(events: list[Event]) -> FakeEngine:
    engine = FakeEngine()
    engine.record(*events)
    return engine


@contextmanager
def served(engine: FakeEngine) -> Iterator[Served]:
    app = create_app(engine, TOKEN, Config())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    made = Served(engine, app, server.servers[0].sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        server.should_exit = server.force_exit = True
        thread.join(5)
