"""`swell port-forward` to a job on a machine over SSH that listens on that machine's own loopback address."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable

from harness import ROOT, Daemon, eventually
from ssh.fleet import add, until
from ssh.machines import Machine
from ssh.shell import Shell

PORT = 6006
SERVES = """
import socket
listener = socket.create_server(("127.0.0.1", 6006))
print("listening", flush=True)
while True:
    client, _ = listener.accept()
    if name := client.recv(100):
        client.sendall(b"hello " + name)
    client.close()
"""


def test_a_port_of_a_job_there_is_reached_from_here(
    new_machine: Callable[..., Machine], served: Daemon, sh: Shell
) -> None:
    machine = new_machine("gpu1", gpus=1, sshd=["AllowTcpForwarding yes"])
    add(sh, machine)
    (job,) = served.submit(command=["python3", "-c", SERVES], gpus=1, grace=1)
    until(served, job, "running")
    eventually(lambda: "listening" in sh("logs", job), 30.0, what="it listens", every_s=0.5)
    assert "nothing answers on port 6007 of gpu1" in sh("port-forward", job, 6007, code=2)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **sh.env}
    words = ["port-forward", str(job), str(PORT), "--local", "0", "--home", str(served.home)]
    forward = subprocess.Popen(
        [sys.executable, "-m", "swell", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True
    )
    assert forward.stdout is not None
    said = forward.stdout.readline()
    found = re.match(rf"http://127.0.0.1:(\d+) is port {PORT} of job {job} on gpu1", said)
    assert found, said
    for name in (b"one", b"two"):
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as client:
            client.sendall(name)
            assert client.recv(100) == b"hello " + name
    sh("cancel", job, "--now")
    assert forward.wait(60.0) == 0
    forward.stdout.close()
