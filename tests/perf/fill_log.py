"""Write the log of many short jobs, five events each, straight into a database: `python fill_log.py DB JOBS [EVERY]`.

With EVERY, a copy of the state is kept every so many events, as the daemon does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.store.open import open_store

SPEC = JobSpec(name="short", command=("/bin/sh", "-c", "true"), user="ann", gpus=GpuRequest(min=1, max=2), epochs=3)
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="slot")


def life(job: int) -> list[ev.Event]:
    run, at_s = RunId(job, 1), 1_000_000.0 + job
    return [
        ev.JobSubmitted(job=job, spec=SPEC, at_s=at_s),
        ev.RunPlanned(run=run, allocation=ALLOCATION, at_s=at_s + 0.1),
        ev.RunStarted(run=run, at_s=at_s + 0.2),
        ev.EpochEnded(run=run, at_s=at_s + 0.3, epoch=1, epoch_s=0.1, gpus=1, metrics={"loss": 0.5}),
        ev.RunEnded(run=run, reason=ExitReason.FINISHED, at_s=at_s + 0.4, exit_code=0),
    ]


def main() -> None:
    store = open_store(f"sqlite:///{sys.argv[1]}")
    store.load()
    node = Node(name="n1", gpus=(Gpu(index=0, type="slot"),), cpus=2, memory_mib=4096)
    events: list[ev.Event] = [ev.NodeObserved(node=node, at_s=1.0)]
    seq = 1
    every = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    for job in range(1, int(sys.argv[2]) + 1):
        events += life(job)
        if len(events) >= 2000:
            store.append(seq, events)
            seq += len(events)
            events = []
            if every and seq // every > (seq - 2000) // every:
                store.checkpoint(store.load())
    store.append(seq, events)
    store.close()


if __name__ == "__main__":
    main()
