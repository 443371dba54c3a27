"""The submission guide's `run-scheduler --image_name …`, exactly as typed there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from containers.images import OPTIONS, python
from containers.jobs import containers_of, ended, log_of
from harness import ROOT, daemon, eventually

pytestmark = pytest.mark.containers

SCRIPT = """
import os, socket, sys
from kubernetesdlprofile import kubeprofiler
prof = kubeprofiler.KubeProfiler()
print(open("/data/numbers.txt").read(), prof.BATCH_SIZE, prof.TRAINING_SET_SIZE, prof.EPOCHS, prof.root_dir, flush=True)
listener = socket.create_server(("127.0.0.1", int(open("/custom/port").read())))
for epoch in range(prof.EPOCHS - prof.EPOCHS_DONE):
    prof.start_epoch()
    prof.measure()
    prof.end_epoch()
    os.makedirs(prof.root_dir, exist_ok=True)
    open(os.path.join(prof.root_dir, "net.pth"), "w").write(str(epoch))
client, _ = listener.accept()
client.sendall(b"from inside")
client.close()
"""


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def test_run_scheduler_with_every_option_of_the_guide(tmp_path: Path) -> None:
    home, state = tmp_path / "me", tmp_path / "me" / ".swell"
    tests, snapshots, datasets = home / "tests", home / "snapshots", home / "datasets"
    for directory in (tests, snapshots, datasets, state):
        directory.mkdir(parents=True)
    node_port, container_port = free_ports()
    (tests / "test1.py").write_text(SCRIPT)
    (tests / "port").write_text(str(container_port))
    (datasets / "numbers.txt").write_text("1,2,3")
    (state / "config.yaml").write_text(f"container_options: [{', '.join(OPTIONS)}]\n")
    environment = {"HOME": str(home), "SWELL_HOME": str(state)}
    with daemon(state, gpus=2, env=environment) as served:
        typed = (
            f"run-scheduler --image_name {python()} --script_path /custom/test1.py --custom_dir {tests} "
            f"--snapshots_dir {snapshots} --batch_size 64 --training_set_size 50000 --max_epochs 3 "
            f"--is_single_gpu true --disable_gpu_sharing true --estimated_memory 4000 "
            f"--port_mapping {node_port}:{container_port} "
            "--est_nhours 2 my_experiment"
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, **environment, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(typed.split(), env=env, cwd=tests, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = re.search(r"\d+", done.stdout + done.stderr)
        assert found
        job = int(found[0])
        heard: list[bytes] = []

        def answers() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", node_port), timeout=2) as client:
                    heard.append(client.recv(100))
            except OSError:
                return False
            return heard[-1] == b"from inside"

        eventually(answers, 60.0, what="the node's port leads into the container", every_s=0.2)
        told = ended(served, job)
        assert (told["state"], told["name"], told["progress"]["epochs_done"]) == ("completed", "my_experiment", 3)
        assert log_of(state, job).startswith("1,2,3 64 50000 3 ")
        assert [path.read_text() for path in snapshots.rglob("net.pth")] == ["2"]
        assert containers_of(state) == []
