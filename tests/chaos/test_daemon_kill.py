"""The daemon is killed with SIGKILL at random moments while short jobs are in flight.

The truth is written by the jobs themselves: each appends its start and its end, with the run's id and the time, to a
file of its own. Afterwards: no job lost, no attempt started twice, no two attempts of a job at once, no process left.
The everyday version is short; `make chaos` runs 200 kills with 500 jobs (SWELL_CHAOS=full).
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import Daemon, end_runs, eventually, marked_processes

FULL = os.environ.get("SWELL_CHAOS") == "full"

SCRIPT = """
t="$TRUTH/$SWELL_JOB"
echo "start $SWELL_RUN $(date +%s.%N)" >> "$t"
if [ -n "$CHILDREN" ]; then setsid sleep 60 & (setsid sleep 60 &) fi
sleep {seconds}
echo "end $SWELL_RUN $(date +%s.%N)" >> "$t"
"""


@dataclass(frozen=True)
class Attempt:
    run: str
    start_s: float
    end_s: float | None


@pytest.mark.chaos
@pytest.mark.parametrize("children", [False, True], ids=["plain", "grandchildren"])
def test_never_loses_doubles_overlaps_or_orphans_a_job_when_the_daemon_is_killed(
    tmp_path: Path, children: bool
) -> None:
    jobs, kills, seed = (500, 200, 7) if FULL else (40, 8, 7)
    figures = ordeal(tmp_path, jobs=jobs, kills=kills, seed=seed, children=children)
    print(figures)
    assert figures["lost"] == figures["doubled"] == figures["overlapping"] == figures["orphans"] == 0


def ordeal(tmp_path: Path, *, jobs: int, kills: int, seed: int, children: bool) -> dict[str, float]:
    rng = random.Random(seed)
    home, truth = tmp_path / "home", tmp_path / "truth"
    truth.mkdir()
    served = Daemon(home, gpus=8)
    began = time.monotonic()
    try:
        served.start()
        ids: list[int] = []
        for kill in range(kills):
            for _ in range(jobs * (kill + 1) // kills - jobs * kill // kills):
                ids.append(submit(served, truth, rng, children))
            time.sleep(rng.uniform(0.0, 0.6))
            served.kill()
            served.start()
        eventually(lambda: all_ended(served), 60 + jobs, what="all jobs end", every_s=0.3)
        states = [served.get(f"/v1/jobs/{job}")["state"] for job in ids]
        orphans = count_orphans(home)
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
        end_runs(home)
    attempts = {job: attempts_of(truth / str(job)) for job in ids}
    return {
        "jobs": jobs,
        "kills": kills,
        "seconds": round(time.monotonic() - began, 1),
        "lost": sum(1 for job, state in zip(ids, states, strict=True) if not is_whole(state, attempts[job])),
        "doubled": sum(len(a) - len({x.run for x in a}) for a in attempts.values()),
        "overlapping": sum(overlaps(a) for a in attempts.values()),
        "orphans": orphans,
        "rerun": sum(len(a) > 1 for a in attempts.values()),
    }


def submit(served: Daemon, truth: Path, rng: random.Random, children: bool) -> int:
    seconds = round(rng.uniform(0.05, 0.8), 2)
    env = {"TRUTH": str(truth), "CHILDREN": "1" if children else ""}
    command = ["/bin/sh", "-c", SCRIPT.format(seconds=seconds)]
    return served.submit(name="short", command=command, gpus=1, env=env)[0]


def all_ended(served: Daemon) -> bool:
    jobs = served.get("/v1/health")["jobs"]
    return not any(jobs.get(state) for state in ("queued", "starting", "running", "stopping"))


def count_orphans(home: Path) -> int:
    """Descendants are swept right after a run's end; give the last sweep a moment."""
    deadline = time.monotonic() + 5
    while (left := marked_processes(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return len(left)


def attempts_of(path: Path) -> list[Attempt]:
    starts: list[tuple[str, float]] = []
    ends: dict[str, float] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, run, at = line.split()
        if kind == "start":
            starts.append((run, float(at)))
        else:
            ends[run] = float(at)
    return [Attempt(run, start, ends.get(run)) for run, start in starts]


def is_whole(state: str, attempts: Sequence[Attempt]) -> bool:
    return state == "completed" and any(attempt.end_s is not None for attempt in attempts)


def overlaps(attempts: Sequence[Attempt]) -> int:
    ordered = sorted(attempts, key=lambda attempt: attempt.start_s)
    pairs = itertools.pairwise(ordered)
    return sum(1 for first, second in pairs if first.end_s is not None and first.end_s > second.start_s)
