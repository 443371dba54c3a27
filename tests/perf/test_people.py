"""32 clients that read and write on 10,000 jobs, on either database: nobody waits long, and nothing grows.

SWELL_LOAD_S says for how long (20 s; the figures are of 600 s)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contract.postgres_server import server_or_skip
from figures import record
from harness import Daemon, daemon
from perf.test_daemon import fill, rss_mib
from perf.test_explain import cpu_s

pytestmark = pytest.mark.perf

PEOPLE = Path(__file__).parent / "people.py"
JOBS, CLIENTS, SECONDS = 10_000, 32, float(os.environ.get("SWELL_LOAD_S", "20"))


@pytest.fixture(params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    with ExitStack() as stack:
        on_server = request.param == "postgresql"
        url = stack.enter_context(server_or_skip()).new_database() if on_server else ""
        args = ("--database", url) if url else ()
        yield stack.enter_context(daemon(tmp_path / "home", args=args))


def descriptors(served: Daemon) -> int:
    assert served.process is not None
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def people(served: Daemon, seconds: float) -> dict[str, Any]:
    host, port = served.address
    arguments = [host, str(port), served.token, str(CLIENTS), str(seconds), "2", str(JOBS + 1)]
    done = subprocess.run([sys.executable, str(PEOPLE), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_people_read_and_write(served: Daemon, request: pytest.FixtureRequest) -> None:
    fill(served, JOBS)
    people(served, 5.0)  # caches are warm, threads are there
    before = rss_mib(served), descriptors(served), cpu_s(served)
    found = people(served, SECONDS)
    after = rss_mib(served), descriptors(served), cpu_s(served)
    count = found["reads"]["count"] + found["writes"]["count"]
    print(json.dumps({**found, "rss_mib": [before[0], after[0]], "descriptors": [before[1], after[1]]}))
    assert not [status for status in found["statuses"] if status >= "500"], found["statuses"]
    name = request.node.callspec.params["served"]
    record(
        "daemon",
        {
            f"people_read_p99_ms_{name}": found["reads"]["p99_ms"],
            f"people_write_p99_ms_{name}": found["writes"]["p99_ms"],
            f"people_cpu_ms_per_request_{name}": 1000 * (after[2] - before[2]) / count,
            f"people_rss_growth_mib_{name}": after[0] - before[0],
            f"people_descriptors_growth_{name}": float(after[1] - before[1]),
        },
    )
