"""A daemon with the nodes of a real cluster, trainings that can be checked to the last bit, and what is left of it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness import Daemon, eventually
from integration.sdk.test_numpy_resized import EPOCH, SCRIPT, uninterrupted
from kubernetes import image
from kubernetes.cluster import GATEWAY, NAMESPACE, NODES, Cluster
from swell.sdk import ship

PATIENT_S = 180.0
harness.READY_S = 180.0  # a cluster runs beside it
GROWS_AT_ONCE = "elastic-fifo"
"""How well growth pays is not what most of these tests are about."""
OWN_NODE = f"node-{1 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:]) % NODES}"
"""Daemons of tests that run at the same time plan apart: with at most two of them per node, 2 GPUs each are there."""
PACED = """
# Runs a training whose steps take a moment only once the file `hurry` is there.
import os, runpy, sys, time
wait = time.sleep
time.sleep = lambda seconds: wait(min(seconds, 0.02) if os.path.exists("/swell/data/hurry") else seconds)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(slots=True)
class Lab:
    cluster: Cluster
    daemon: Daemon
    home: Path
    work: Path
    storage: Path

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *words)

    @property
    def label(self) -> str:
        """Of this daemon's objects."""
        with sqlite3.connect(self.home / "swell.db") as database:
            ((cluster_id,),) = database.execute("SELECT cluster_id FROM writer")
        database.close()
        return f"swell/job,swell/cluster={cluster_id}"

    def label_of(self, job: int) -> str:
        """Of a job's pods: other daemons on this cluster have jobs of the same number."""
        return self.label.replace("swell/job", f"swell/job={job}", 1)

    # ---- jobs ----

    def train(self, epochs: int, steps: int = 2, work_s: float = 0.15, **more: object) -> int:
        """The numpy example, as its job file would have it; its files go along."""
        shutil.copy(SCRIPT, self.work / "train.py")
        (self.work / "paced.py").write_text(PACED, encoding="ascii")
        command = ["python3", "paced.py", "train.py", "--steps", str(steps), "--work-s", str(work_s)]
        job = {"name": "numpy", "command": command, "gpus": "1-3", "launcher": "per-gpu", "epochs": epochs}
        return self.submit(**{**job, "uses_library": True, **more})

    def hurry(self, job: int) -> None:
        """What was to be seen of the training was seen: it may come to its end."""
        (found,) = self.storage.glob(f"*/{job}")
        (found / "hurry").touch()

    def hold(self, gpus: int, **more: object) -> int:
        """A job that keeps so many GPUs of one node until it is cancelled."""
        return self.submit(command="sleep 1000", gpus=gpus, name=f"hold-{gpus}", **more)

    def submit(self, **job: object) -> int:
        document = {"image": image.NAME, "kubernetes": {}, "grace": 20, **job}
        (self.work / "job.json").write_text(json.dumps(document), encoding="utf-8")
        env = {**os.environ, "SWELL_HOME": str(self.home)}
        words = [sys.executable, "-m", "swell", "submit", "--json", "job.json"]
        told = subprocess.run(words, cwd=self.work, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert told.returncode == 0, told.stderr + told.stdout
        return int(json.loads(told.stdout)["jobs"][0]["id"])

    def job(self, job: int) -> dict[str, Any]:
        found: dict[str, Any] = self.daemon.get(f"/v1/jobs/{job}")
        return found

    def gpus(self, job: int) -> int:
        view = self.job(job)
        return int(view["gpus"]["held"]) if view["state"] == "running" else 0

    def epochs(self, job: int) -> int:
        return int(self.job(job)["progress"]["epochs_done"])

    def nodes(self, job: int) -> set[str]:
        return {place.partition(":")[0] for place in self.job(job)["where"]}

    def until(self, job: int, *states: str) -> dict[str, Any]:
        def reached() -> bool:
            return self.job(job)["state"] in states

        eventually(reached, PATIENT_S, what=f"job {job} is {states}: {self.job(job)}", every_s=0.3)
        return self.job(job)

    def until_epochs(self, job: int, more: int) -> None:
        """So many epochs from now."""
        goal = self.epochs(job) + more
        eventually(
            lambda: self.epochs(job) >= goal or self.job(job)["state"] == "completed",
            PATIENT_S,
            what=f"job {job} does {more} more epochs: {self.job(job)}",
            every_s=0.3,
        )

    def until_gpus(self, job: int, count: int) -> None:
        eventually(
            lambda: self.gpus(job) == count, PATIENT_S, what=f"job {job} has {count} GPUs: {self.job(job)}", every_s=0.3
        )

    def trainers(self, job: int) -> list[int]:
        """Processes of this machine that train in containers of a job."""
        port = f":{(self.home / 'port').read_text(encoding='ascii').strip()}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environ = dict(item.partition(b"=")[::2] for item in (path / "environ").read_bytes().split(b"\0"))
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = environ.get(b"SWELL_URL", b"").endswith(port) and environ.get(b"SWELL_JOB") == str(job).encode()
            in_pod = environ.get(b"SWELL_JOURNAL", b"").startswith(b"/swell/run")
            if ours and in_pod and words[0].endswith(b"python3") and b"train.py" in words:
                found.append(int(path.name))
        return sorted(found)

    # ---- what must hold in the end ----

    def lines(self, job: int) -> list[tuple[int, str, int]]:
        """(epoch, loss, workers) as rank 0 of each attempt wrote them."""
        found = []
        for attempt in range(1, self.job(job)["attempts"] + 1):
            log = self.home / "pods" / f"{job}.{attempt}" / "0" / "log"
            text = log.read_text(encoding="utf-8") if log.exists() else ""
            found += [(int(epoch), loss, int(workers)) for epoch, loss, workers in EPOCH.findall(text)]
        return found

    def check(self, job: int, epochs: int, steps: int = 2, *, exact: bool = True) -> list[tuple[int, str, int]]:
        """Every epoch, in order, with the losses of an undisturbed training. Not `exact`: epochs that a kill
        interrupted were done again, with the same result."""
        lines = self.lines(job)
        expected = uninterrupted(ship.ship(self.work.parent / "sdk"), epochs, steps)
        assert {epoch: loss for epoch, loss, _ in lines}.items() <= expected.items()
        assert lines[-1][0] == epochs - 1
        if exact:
            done = [epoch for epoch, _, _ in lines]
            assert done == list(range(epochs)), f"each epoch once: {done}"
        return lines

    def pods(self) -> list[str]:
        found = json.loads(self.kubectl("get", "pods", "-l", self.label, "-o", "json"))
        return [item["metadata"]["name"] for item in found["items"]]

    def until_nothing_is_left(self) -> None:
        eventually(lambda: not self.pods(), PATIENT_S, what=f"no pod is left: {self.pods()}", every_s=0.5)

        def owners() -> str:
            return self.kubectl("get", "configmaps,secrets", "-l", self.label, "-o", "name")

        eventually(lambda: not owners(), PATIENT_S, what="no ConfigMap or Secret of a run is left", every_s=0.5)


@contextmanager
def lab(
    tmp_path: Path, cluster: Cluster, policy: str = GROWS_AT_ONCE, *, server: str = "", **more: object
) -> Iterator[Lab]:
    """`server`: the daemon reaches the API server by that way. `more`: settings under `kubernetes:`."""
    home, work, storage = (tmp_path / name for name in ("home", "work", "storage"))
    for path in (home, work, storage):
        path.mkdir()
    settings = {
        "kubeconfig": str(cluster.as_daemon(server)),
        "storage_path": str(storage),
        "probe_image": image.NAME,
        **more,
    }
    config = {"kubernetes": settings, "host": "0.0.0.0", "insecure_listen": True, "advertise": GATEWAY}
    config |= {"policy": policy}
    (home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    daemon = Daemon(home, gpus=0)
    made = Lab(cluster=cluster, daemon=daemon, home=home, work=work, storage=storage)
    try:
        daemon.start()
        eventually(lambda: len(daemon.get("/v1/nodes")["nodes"]) == 3, 30.0, what="nodes of the cluster are there")
        yield made
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.kill()
        daemon.hang_up()
        if (home / "swell.db").exists():
            _clean(made)


def _clean(found: Lab) -> None:
    """Whatever a test that failed has left."""
    for name in found.kubectl("get", "pods", "-l", found.label, "-o", "name").split():
        found.kubectl("delete", name, "--wait=false", "--grace-period=1")
        found.kubectl("patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    found.kubectl("delete", "configmaps", "-l", found.label.removeprefix("swell/job,"))
