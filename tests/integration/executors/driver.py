"""A daemon's hands in a process of their own, to be killed by tests: launches, observes, prints what it is told.

Usage: driver.py RUNS_DIR KNOWN_RUNS LAUNCHES (JSON: {run: [argv of each rank]}).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from contract.executor_benches import as_is, ready
from swell.core.ids import RunId
from swell.core.observations import Adopted, FilesFound
from swell.executors.local import LocalExecutor
from swell.executors.tracking import Tuning
from swell.ports import Launch, Worker


class RealClock:
    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


async def drive(runs: Path, known: list[str], launches: dict[str, list[list[str]]]) -> None:
    executor = LocalExecutor(runs, RealClock(), as_is, tuning=Tuning(poll_s=0.3, straggler_s=0.2, ask_again_s=1.0))
    tasks = []
    for name, argvs in launches.items():
        workers = tuple(
            Worker(rank=rank, node="here", argv=tuple(argv), env={}, cwd="/") for rank, argv in enumerate(argvs)
        )
        tasks.append(executor.launch(ready(Launch(run=RunId.parse(name), workers=workers, grace_s=1.0))))
    started = asyncio.gather(*tasks)
    async for told in executor.observe([RunId.parse(name) for name in known]):
        if isinstance(told, FilesFound | Adopted):
            continue
        run, reason = str(told.run), str(getattr(told, "reason", ""))  # type: ignore[union-attr]
        print(json.dumps({"kind": type(told).__name__, "run": run, "reason": reason}), flush=True)
    await started


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])))
