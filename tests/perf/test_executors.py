"""How fast the local executor starts runs and hears of their ends, and what watching costs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from statistics import median

import pytest

from contract.executor_benches import RealClock, as_is, ready
from figures import record
from swell.core.ids import RunId
from swell.core.observations import RunGone
from swell.executors.local import LocalExecutor
from swell.ports import Launch, Worker

pytestmark = pytest.mark.perf
PRINT_TIME = ("date", "+%s.%N")


class Counter:
    """Launches runs that print the time, and notes when their end is told."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.executor = LocalExecutor(runs, RealClock(), as_is)
        self.asked_s: dict[RunId, float] = {}
        self.told: dict[RunId, tuple[float, RunGone]] = {}
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async for item in self.executor.observe([]):
            if isinstance(item, RunGone):
                self.told[item.run] = (time.time(), item)
                self._news.set()

    async def run(self, job: int, argv: tuple[str, ...] = PRINT_TIME) -> None:
        run = RunId(job, 1)
        worker = Worker(rank=0, node="here", argv=argv, env={}, cwd="/")
        self.asked_s[run] = time.time()
        await self.executor.launch(ready(Launch(run=run, workers=(worker,), grace_s=1.0)))

    async def until_told(self, run: RunId) -> None:
        while run not in self.told:
            self._news.clear()
            await self._news.wait()

    def first_output_ms(self) -> list[float]:
        logs = {run: self.runs / str(run) / "0" / "log" for run in self.asked_s}
        return [1000 * (float(logs[run].read_text()) - at_s) for run, at_s in self.asked_s.items()]

    def told_after_ms(self) -> list[float]:
        return [1000 * (at_s - gone.at_s) for at_s, gone in self.told.values()]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_starts_and_latency(tmp_path: Path) -> None:
    """One after the other for latency, then 200 at four at a time for the rate."""

    async def one_by_one() -> dict[str, float]:
        counter = Counter(tmp_path / "single")
        await asyncio.sleep(0.5)
        for job in range(1, 51):
            await counter.run(job)
            await counter.until_told(RunId(job, 1))
        first, told = counter.first_output_ms(), counter.told_after_ms()
        await counter.close()
        return {
            "launch_to_first_output_p50_ms": median(first),
            "launch_to_first_output_max_ms": max(first),
            "exit_to_told_p50_ms": median(told),
            "exit_to_told_max_ms": max(told),
        }

    async def many() -> dict[str, float]:
        counter = Counter(tmp_path / "many")
        await asyncio.sleep(0.5)
        slots = asyncio.Semaphore(4)

        async def one(job: int) -> None:
            async with slots:
                await counter.run(job)
                await counter.until_told(RunId(job, 1))

        began_s = time.monotonic()
        await asyncio.gather(*(one(job) for job in range(1, 201)))
        took_s = time.monotonic() - began_s
        await counter.close()
        return {"starts_per_s": 200 / took_s}

    record("executors", {**asyncio.run(one_by_one()), **asyncio.run(many())})


def test_watching_many_runs_is_cheap(tmp_path: Path) -> None:
    """CPU of the observing process with 100 runs that do nothing but live."""

    async def scene() -> dict[str, float]:
        counter = Counter(tmp_path / "runs")
        await asyncio.sleep(0.5)
        await asyncio.gather(*(counter.run(job, ("sleep", "1000")) for job in range(1, 101)))
        await asyncio.sleep(3.0)
        before, began_s = os.times(), time.monotonic()
        await asyncio.sleep(6.0)
        after, took_s = os.times(), time.monotonic() - began_s
        await asyncio.gather(*(counter.executor.signal(run, kill=True) for run in counter.asked_s))
        for run in counter.asked_s:
            await counter.until_told(run)
        await counter.close()
        cpu_s = after.user + after.system - before.user - before.system
        return {"watching_100_runs_cpu_percent": 100 * cpu_s / took_s}

    record("executors", asyncio.run(scene()))
