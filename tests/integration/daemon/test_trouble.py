"""A real daemon in trouble: a full disk, a damaged database, a second daemon, a log without end."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT, Daemon, daemon, eventually

LOG_MIB = 1024 if os.environ.get("SWELL_CHAOS") == "full" else 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight MiB, on which nothing else lives."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"needs to mount a tmpfs, which is not permitted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_said_plainly_leaves_running_jobs_alone_and_is_recovered_from(small_disk: Path) -> None:
    with daemon(small_disk / "home") as served:
        [running] = served.submit(name="runs", command="sleep 60", gpus=1)
        eventually(lambda: served.get(f"/v1/jobs/{running}")["state"] == "running", 10)
        ballast = small_disk / "ballast"
        fill(ballast)
        refused = eventually_refused(served)
        assert refused["status"] == 507
        assert "space" in refused["detail"] or "full" in refused["detail"]
        assert served.get(f"/v1/jobs/{running}")["state"] == "running"
        eventually(lambda: not served.get("/v1/health")["ready"], 10, what="health says that nothing can be written")
        assert "space" in served.get("/v1/health")["degraded"]

        ballast.unlink()
        eventually(lambda: accepted(served), 15, what="submissions work again once there is space", every_s=0.2)
        assert served.get(f"/v1/jobs/{running}")["state"] == "running"
        served.post(f"/v1/jobs/{running}/cancel")
        eventually(lambda: served.get(f"/v1/jobs/{running}")["state"] == "cancelled", 20)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
        try:
            while True:
                file.write(b"x" * 512)
        except OSError:
            pass


def eventually_refused(served: Daemon) -> dict[str, Any]:
    """The log's pages in hand may take a few more submissions."""
    for _ in range(2000):
        status, body = served.request("POST", "/v1/jobs", {"name": "more", "command": "true", "gpus": 1})
        if status >= 400:
            return {"status": status, "detail": str(body)}
    raise AssertionError("a full disk was never noticed")


def accepted(served: Daemon) -> bool:
    status, _ = served.request("POST", "/v1/jobs", {"name": "again", "command": "true", "gpus": 1})
    return status < 300


def serve_once(home: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "swell", "serve", "--home", str(home), "--gpus", "1"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)


def test_a_truncated_database_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with daemon(home) as served:
        served.submit(name="j", command="true", gpus=1)
        served.stop()
    database = home / "swell.db"
    whole = database.read_bytes()
    database.write_bytes(whole[: len(whole) // 2])
    damaged = hashlib.sha256(database.read_bytes()).hexdigest()
    found = serve_once(home)
    assert found.returncode != 0
    assert "swell.db" in found.stdout + found.stderr
    assert "Traceback" not in found.stdout + found.stderr
    assert hashlib.sha256(database.read_bytes()).hexdigest() == damaged


def test_a_second_daemon_refuses_with_the_address_of_the_first(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        found = serve_once(tmp_path / "home")
        host, port = served.address
        assert found.returncode != 0
        assert f"http://{host}:{port}" in found.stdout + found.stderr


def test_a_graceful_stop_leaves_jobs_running_and_the_next_start_adopts_them(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        mark = tmp_path / "mark"
        command = f"echo one >> {mark}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo two >> {mark}"
        [job] = served.submit(name="long", command=command, gpus=1)
        eventually(mark.exists, 10)
        assert served.stop() == 0
        (tmp_path / "go").touch()
        eventually(lambda: mark.read_text() == "one\ntwo\n", 10)
        served.start()
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 10)
        assert served.get(f"/v1/jobs/{job}")["attempts"] == 1


def rss_mib(served: Daemon) -> float:
    assert served.process is not None
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def test_every_byte_of_a_large_log_comes_back_and_memory_stays_flat(tmp_path: Path) -> None:
    """64 MiB every day; the whole GiB with SWELL_CHAOS=full."""
    line = "0123456789abcde"  # sixteen bytes with its end
    with daemon(tmp_path / "home") as served:
        [job] = served.submit(name="chatty", command=f"yes {line} | head -c {LOG_MIB}M", gpus=1)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 120)
        before = rss_mib(served)
        size, digest, most = 0, hashlib.sha256(), before
        for chunk in log_chunks(served, job):
            size += len(chunk)
            digest.update(chunk)
            most = max(most, rss_mib(served))
    expected = hashlib.sha256()
    for _ in range(LOG_MIB):
        expected.update(f"{line}\n".encode() * 65536)
    assert (size, digest.hexdigest()) == (LOG_MIB << 20, expected.hexdigest())
    assert most - before < 30, f"{most - before:.0f} MiB more than before"


def log_chunks(served: Daemon, job: int) -> Iterator[bytes]:
    import http.client

    connection = http.client.HTTPConnection(*served.address, timeout=30)
    try:
        connection.request("GET", f"/v1/jobs/{job}/logs", headers={"Authorization": f"Bearer {served.token}"})
        answer = connection.getresponse()
        assert answer.status == 200
        while data := answer.read(1 << 20):
            yield data
    finally:
        connection.close()


def test_answers_never_wait_for_the_client_where_uvloop_is_not_installed(tmp_path: Path) -> None:
    """The second packet of an answer was held back until the first was acknowledged: 40 ms a request."""
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "uvloop.py").write_text("raise ImportError('not installed')")
    with daemon(tmp_path / "home", env={"PYTHONPATH": f"{missing}:{ROOT / 'src'}"}) as served:
        times = []
        for _ in range(15):
            began = time.monotonic()
            served.get("/v1/health")
            times.append(time.monotonic() - began)
    assert statistics.median(times) < 0.03
