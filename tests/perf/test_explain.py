"""24 clients, a tenth of whose requests explain, on 5,000 queued jobs: nobody is kept waiting, nobody is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from figures import record
from harness import Daemon, daemon, eventually
from swell.core import events as ev
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Options
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cheapest_change import Trial
from swell.speed.book import Book

pytestmark = pytest.mark.perf

MIX = Path(__file__).parent / "mix.py"
QUEUED, CLIENTS, SECONDS = 5_000, 24, 15


def queue(served: Daemon) -> range:
    """All GPUs are held by a job that cannot be preempted; behind it jobs wait."""
    served.submit(name="holds", command="sleep 3600", gpus=4)
    eventually(lambda: served.get("/v1/health")["jobs"].get("running"), 20)
    ids = [
        job for _ in range(QUEUED // 1000) for job in served.submit(name="waits", command="true", gpus=2, array=1000)
    ]
    return range(ids[0], ids[-1] + 1)


def cpu_s(served: Daemon) -> float:
    """Of the daemon alone: what is worked out beside it has processes of its own."""
    assert served.process is not None
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mixed(served: Daemon, jobs: range) -> dict[str, Any]:
    host, port = served.address
    arguments = [host, str(port), served.token, str(CLIENTS), str(SECONDS), str(jobs[0]), str(jobs[-1])]
    done = subprocess.run([sys.executable, str(MIX), *arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_tenth_of_requests_explain(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        jobs = queue(served)
        eventually(lambda: not served.get(f"/v1/jobs/{jobs[-1]}/explain")["missing"], 60, every_s=0.5)
        before_s = cpu_s(served)
        found = mixed(served, jobs)
        used_s = cpu_s(served) - before_s
    lists, explains = found["list"], found["explain"]
    requests = lists["count"] + explains["count"]
    refused = sum(n for kind in (lists, explains) for status, n in kind["statuses"].items() if int(status) >= 500)
    record(
        "explain",
        {
            "machine_load_average": os.getloadavg()[0],
            "requests_per_s_with_24_clients": requests / SECONDS,
            "list_p50_ms_with_24_clients": lists["p50_ms"],
            "list_p99_ms_with_24_clients": lists["p99_ms"],
            "explain_p50_ms_with_24_clients": explains["p50_ms"],
            "explain_p99_ms_with_24_clients": explains["p99_ms"],
            "explains_with_nothing_missing": found["complete"] / explains["count"],
            "answers_5xx_with_24_clients": refused,
            "cpu_ms_per_request_with_24_clients": 1000 * used_s / requests,
        },
    )


def test_advice_at_5000_queued() -> None:
    nodes = [Node(name=f"n{i}", gpus=tuple(Gpu(index=g) for g in range(4))) for i in range(2)]
    events: list[ev.Event] = [ev.NodeObserved(node=node, at_s=0.0) for node in nodes]
    for job in range(1, QUEUED + 1):
        n = (1, 1, 2, 4)[job % 4]
        spec = JobSpec(name=f"f{job % 50}", command=(f"f{job % 50}",), gpus=GpuRequest(min=n, max=n))
        events.append(ev.JobSubmitted(job=job, spec=spec, at_s=job / 100))
    policy, placer = policy_named("swell"), placer_named("consolidated")
    began = time.process_time()
    moment = Trial(replay(events), Book(), policy, placer, Options(), 100.0)
    once = time.process_time() - began
    jobs = range(QUEUED - 10, QUEUED)
    began = time.process_time()
    for job in jobs:
        moment.cheapest(job)
    each = (time.process_time() - began) / len(jobs)
    record("explain", {"moment_cpu_ms_at_5000_queued": 1000 * once, "advice_cpu_ms_at_5000_queued": 1000 * each})
