"""What the daemon is measured by: submissions, lists, restarts, memory, time to the first line of output."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from figures import record
from harness import Daemon, daemon, eventually

pytestmark = pytest.mark.perf

LOAD = Path(__file__).parent / "load.py"


def rss_mib(served: Daemon) -> float:
    assert served.process is not None
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def submit_rate(served: Daemon, clients: int, seconds: float, body: dict[str, object]) -> float:
    host, port = served.address
    arguments = [host, str(port), served.token, str(clients), str(seconds), "/v1/jobs", json.dumps(body)]
    found = subprocess.run([sys.executable, str(LOAD), *arguments], capture_output=True, text=True, check=True)
    count, took = found.stdout.split()
    return float(count) / float(took)


def fill(served: Daemon, jobs: int) -> None:
    """Jobs that wait for ever, submitted many at a time."""
    blocker = served.submit(name="blocker", command="sleep 600", gpus=1)[0]
    for _ in range(jobs // 1000):
        served.submit(name="waits", command="true", gpus=1, depends_on=[blocker], array=1000)


def test_ready_and_idle(tmp_path: Path) -> None:
    served = Daemon(tmp_path / "home")
    times = []
    try:
        for _ in range(5):
            times.append(served.start())
            idle = rss_mib(served)
            served.stop()
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
    record("daemon", {"ready_s": statistics.median(times), "idle_rss_mib": idle})


def test_durable_submissions(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        blocker = served.submit(name="blocker", command="sleep 600", gpus=4)[0]
        body: dict[str, object] = {"name": "waits", "command": "true", "gpus": 1, "depends_on": [blocker]}
        one = submit_rate(served, 1, 4.0, body)
        many = submit_rate(served, 32, 6.0, body)
        passes = served.get("/v1/health")["passes"]
    record(
        "daemon",
        {"submit_1_client_per_s": one, "submit_32_clients_per_s": many, "passes_during_submissions": float(passes)},
    )


def test_ten_thousand_queued(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        fill(served, 10_000)
        served.get("/v1/jobs?state=queued&limit=100")
        times = []
        for _ in range(200):
            began = time.perf_counter()
            served.get("/v1/jobs?state=queued&limit=100")
            times.append(time.perf_counter() - began)
        p99 = statistics.quantiles(times, n=100)[98]
        record("daemon", {"list_p99_ms_at_10000_queued": 1000 * p99, "rss_mib_at_10000_queued": rss_mib(served)})


def test_submit_to_first_line(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        times = [first_line_s(served) for _ in range(20)]
    record("daemon", {"submit_to_first_line_p50_s": statistics.median(times)})


def first_line_s(served: Daemon) -> float:
    began = time.perf_counter()
    [job] = served.submit(name="hello", command="echo hello", gpus=1)
    log = served.home / "runs" / f"{job}.1" / "0" / "log"
    eventually(lambda: log.exists() and log.stat().st_size > 0, 10, every_s=0.002)
    took = time.perf_counter() - began
    eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 10)
    return took


@pytest.mark.parametrize(("every", "figure"), [(20_000, "restart_s"), (0, "restart_without_checkpoint_s")])
def test_ready_again_with_many_events(tmp_path: Path, every: int, figure: str) -> None:
    """200,000 events of 40,000 short jobs in the log, as after a SIGKILL: with the last copy of the state that the
    daemon keeps every 20,000 events, and without any."""
    home = tmp_path / "home"
    home.mkdir()
    script = Path(__file__).parent / "fill_log.py"
    subprocess.run([sys.executable, str(script), str(home / "swell.db"), "40000", str(every)], check=True)
    served = Daemon(home)
    try:
        took = served.start()
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
    record("daemon", {f"{figure}_with_200000_events": took})
