"""The application with the real engine and store, in a process of its own, for tests that send it anything at all:
jobs play out scripts, so that no command is ever run. Prints its port.

    python real_app.py HOME
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from pathlib import Path

from swell import listening
from swell.api import attempts
from swell.api.app import create_app
from swell.config import load_config
from swell.core.job import JobSpec
from swell.core.resources import Gpu, Node
from swell.daemon.clock import SystemClock
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.ports import Launch, Order, Worker
from swell.serve import prepare_home
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.open import open_store

TOKEN = "t" * 40
NODE = Node(name="n1", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8, memory_mib=8192)


def prepare(order: Order) -> Launch:
    record = order.record
    assert record.run is not None
    worker = Worker(rank=0, node=record.run.allocation.nodes[0], argv=record.spec.command, env={}, cwd="/")
    return Launch(run=record.run.id, workers=(worker,), grace_s=record.spec.grace_s)


def behave(launch: Launch, worker: Worker) -> Script:
    return Script(lasts_s=0.05 * (launch.run.job % 5), exit_code=launch.run.job % 3 // 2, log=b"epoch 1\nepoch 2\n")


async def play(executor: ScriptedExecutor) -> None:
    while True:
        executor.tick()
        await asyncio.sleep(0.02)


async def main(home: Path) -> None:
    attempts.BURST = 1_000_000  # each route is tried with a wrong token, faster than one a second
    config = load_config(home)
    prepare_home(config)
    logging.basicConfig(filename=home / "daemon.log")
    clock, store, book = SystemClock(), open_store(config.database_url), Book()
    executor = ScriptedExecutor(Theatre(nodes=(NODE,)), clock, behave, prepare)
    engine = Engine(
        committer=Committer(store, Journal(store), book),
        record=store,
        executor=executor,
        book=book,
        clock=clock,
        settings=Settings(policy="fifo"),
    )
    await engine.start()
    playing = asyncio.create_task(play(executor))
    await engine.submit([JobSpec(name=name, command=("true",)) for name in ("a", "b", "c", "sleeper")])
    doors = listening.bind(config)
    server = listening.server_of(create_app(engine, TOKEN, config))
    print(doors.plain.getsockname()[1], flush=True)
    await server.serve(sockets=[doors.plain])
    playing.cancel()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1])))
