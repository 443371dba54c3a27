"""How long a job in a container takes to start and to be gone, beside the same as a plain process.

PYTHONPATH=tests .venv/bin/python -m containers.measure
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from containers.bench import ContainerBench
from contract.executor_benches import LocalBench, launch_of, watching
from swell.core.ids import RunId
from swell.core.observations import RunGone, RunUp

ROUNDS = 20


async def _one(bench: LocalBench, run: RunId) -> tuple[float, float]:
    """Seconds from the command to start to its program running, and from its own end to nothing of it being left."""
    async with watching(bench) as watch:
        began = time.time()
        await watch.executor.launch(launch_of(bench, "finish", run=run))
        gone = await watch.until(RunGone, run)
        heard = time.time()
        up = await watch.until(RunUp, run)
        assert gone.exit_code == 0
        return up.at_s - began, heard - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        benches = {"process": LocalBench(Path(folder, "p")), "container": ContainerBench(Path(folder, "c"))}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in benches}
        for number in range(ROUNDS):
            for name, bench in benches.items():
                found[name].append(asyncio.run(_one(bench, RunId(number + 1, 1))))
        for name, times in found.items():
            up_ms, gone_ms = (1000 * median(column) for column in zip(*times, strict=True))
            print(f"{name}: up after {up_ms:.0f} ms, wholly gone after {gone_ms:.0f} ms (medians of {ROUNDS})")


if __name__ == "__main__":
    main()
