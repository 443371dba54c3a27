"""`swell port-forward`: a port of a job with an image, on the machine of whoever asks."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from containers.images import busybox
from containers.jobs import serving
from harness import ROOT, eventually

pytestmark = pytest.mark.containers


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_port_of_a_job_is_reached_from_here_until_the_job_ends(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as served:
        inside, local = free_port(), free_port()
        line = f"while :; do echo hello | nc -l -p {inside} 127.0.0.1; done"
        (job,) = served.submit(command=line, image=busybox(), gpus=0, grace=1)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "running", 30.0)
        words = ["port-forward", str(job), str(inside), "--local", str(local), "--home", str(served.home)]

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-m", "swell", *words],
                stdout=subprocess.PIPE,
                env={"PYTHONPATH": str(ROOT / "src")},
                text=True,
            )

        forward = start()
        assert forward.stdout is not None
        assert (
            forward.stdout.readline()
            == f"http://127.0.0.1:{local} is port {inside} of job {job} on 127.0.0.1; Ctrl-C ends this\n"
        )

        def answers() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", local), timeout=2) as client:
                    return client.recv(100) == b"hello\n"
            except OSError:
                return False

        eventually(answers, 20.0, what="it answers here", every_s=0.2)
        served.post(f"/v1/jobs/{job}/cancel")
        assert forward.wait(30.0) == 0
        forward.stdout.close()


def test_a_port_that_nobody_listens_on_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as served:
        (job,) = served.submit(command="sleep 1000", image=busybox(), gpus=0, grace=1)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "running", 30.0)
        words = [sys.executable, "-m", "swell", "port-forward", str(job), str(free_port()), "--home", str(served.home)]
        done = subprocess.run(words, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "nothing answers on port" in done.stderr
        served.post(f"/v1/jobs/{job}/cancel")
