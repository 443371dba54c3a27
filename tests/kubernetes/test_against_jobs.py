"""The same trainings as plain Jobs under the cluster's own scheduler, then by Swell with its default policy.

`SWELL_KUBERNETES_TRAININGS=30` (15 minutes). `SWELL_KUBERNETES_LONGER=3`: all times but the start of pods are three
times as long, nearer to real trainings, of which a restart is a small part. Steps sleep as long as GPUs would compute:
n GPUs take (0.1 + 0.9 / n) of what one takes, which Swell has to measure. A Job has as many GPUs as its user asked for;
Swell may give any training 1 to 4. Which GPUs are bound is read from the API server, for both in the same way.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import ssl
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml

from harness import eventually
from integration.sdk.test_numpy_resized import SCRIPT
from kubernetes import image
from kubernetes.cluster import GPUS, NAMESPACE, NODES, Cluster
from kubernetes.lab import lab
from swell.sdk import ship

TRAININGS = int(os.environ.get("SWELL_KUBERNETES_TRAININGS", "0"))
LONGER = float(os.environ.get("SWELL_KUBERNETES_LONGER", "1"))
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.alone,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif(not TRAININGS, reason="takes half an hour: SWELL_KUBERNETES_TRAININGS=30"),
]
BETTER = 1.5
PATIENT_S = 3600.0
EPOCH_S, STEPS, MOST = 3.0 * LONGER, 2, 4
SCALED = """
import os, runpy, sys, time
wait, workers = time.sleep, int(os.environ["WORLD_SIZE"])
time.sleep = lambda seconds: wait(seconds * (0.9 + 0.1 * workers))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
COMMAND = ("python3", "scaled.py", "train.py", "--steps", str(STEPS), "--work-s", str(EPOCH_S / STEPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    name: str
    after_s: float  # when it is submitted
    epochs: int  # of EPOCH_S each on one GPU
    asked: int  # GPUs, by the user of a plain Job


def trainings(count: int) -> list[Training]:
    """Half are shorter than 20 epochs, some have 100: as in traces of clusters. One as often as an epoch lasts."""
    draw, after_s, found = random.Random(17), 0.0, []
    for number in range(count):
        seconds = LONGER * min(300.0, max(20.0, draw.lognormvariate(4.1, 0.8)))
        epochs, asked = max(1, round(seconds / EPOCH_S)), draw.randint(1, MOST)
        found.append(Training(name=f"t{number}", after_s=after_s, epochs=epochs, asked=asked))
        after_s += draw.expovariate(1 / EPOCH_S)
    return found


@dataclass(slots=True)
class Watched:
    """How many GPUs pods had, second by second."""

    samples: list[tuple[float, Counter[str]]] = field(default_factory=list)

    @property
    def most(self) -> int:
        """On one node at once."""
        return max((count for _, bound in self.samples for count in bound.values()), default=0)

    def utilisation(self) -> float:
        """Of all GPUs, from the first pod to the last."""
        used = [(at_s, bound.total()) for at_s, bound in self.samples]
        busy = [at_s for at_s, count in used if count]
        pairs = itertools.pairwise(used)
        held = sum(count * (later_s - at_s) for (at_s, count), (later_s, _) in pairs)
        return held / (NODES * GPUS * (busy[-1] - busy[0]))


@contextmanager
def watched(cluster: Cluster) -> Iterator[Watched]:
    found, over = Watched(), threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            found.samples.append((time.monotonic(), bound(cluster)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def bound(cluster: Cluster) -> Counter[str]:
    config = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    request = urllib.request.Request(f"{config['clusters'][0]['cluster']['server']}/api/v1/pods")
    request.add_header("Authorization", f"Bearer {config['users'][0]['user']['token']}")
    unverified = ssl._create_unverified_context()
    with urllib.request.urlopen(request, context=unverified, timeout=60) as answer:
        pods = json.load(answer)["items"]
    counts: Counter[str] = Counter()
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            limits = [container["resources"].get("limits", {}) for container in pod["spec"]["containers"]]
            counts[pod["spec"]["nodeName"]] += sum(int(limit.get("nvidia.com/gpu", 0)) for limit in limits)
    return counts


def submitted(found: Sequence[Training], submit: Callable[[Training], None]) -> None:
    began_s = time.monotonic()
    for training in found:
        time.sleep(max(0.0, began_s + training.after_s - time.monotonic()))
        submit(training)


# ---- plain Jobs ----


def job_of(training: Training, directory: Path) -> dict[str, Any]:
    places = {"scaled.py": "/train/scaled.py", "train.py": "/train/train.py"}
    worker = " ".join([*(places.get(word, word) for word in COMMAND), "--epochs", str(training.epochs)])
    ranks = range(training.asked)
    started = [f"RANK={rank} LOCAL_RANK={rank} {worker} & p{rank}=$!" for rank in ranks]
    lines = ["mkdir -p /tmp/own", "cd /tmp/own", *started, " && ".join(f"wait $p{rank}" for rank in ranks)]
    env = {"WORLD_SIZE": str(training.asked), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    container = {
        "name": "train",
        "image": image.NAME,
        "command": ["/bin/sh", "-c", "\n".join(lines)],
        "env": [{"name": name, "value": value} for name, value in {**env, "PYTHONPATH": "/train/sdk"}.items()],
        "resources": {"limits": {"nvidia.com/gpu": str(training.asked)}},
        "volumeMounts": [{"name": "train", "mountPath": "/train", "readOnly": True}],
    }
    volumes = [{"name": "train", "hostPath": {"path": str(directory)}}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    spec = {"backoffLimit": 0, "template": {"metadata": {"labels": {"plain": "job"}}, "spec": pod}}
    meta = {"name": training.name, "namespace": NAMESPACE, "labels": {"plain": "job"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def as_plain_jobs(cluster: Cluster, directory: Path, found: Sequence[Training]) -> list[float]:
    """Seconds from submission to completion of each."""

    def jobs() -> list[dict[str, Any]]:
        answer = cluster.kubectl("-n", NAMESPACE, "get", "jobs", "-l", "plain=job", "-o", "json")
        items: list[dict[str, Any]] = json.loads(answer)["items"]
        assert not any(item["status"].get("failed") for item in items)
        return items

    try:
        submitted(found, lambda training: apply(cluster, job_of(training, directory)))
        eventually(lambda: all("completionTime" in job["status"] for job in jobs()), PATIENT_S, every_s=3.0)
        return [at_s(job["status"]["completionTime"]) - at_s(job["metadata"]["creationTimestamp"]) for job in jobs()]
    finally:
        cluster.kubectl("-n", NAMESPACE, "delete", "jobs", "-l", "plain=job", "--cascade=foreground", "--timeout=50s")


def apply(cluster: Cluster, item: dict[str, Any]) -> None:
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(item))


def at_s(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


# ---- Swell ----


def by_swell(tmp_path: Path, cluster: Cluster, found: Sequence[Training]) -> tuple[list[float], int]:
    """Seconds from submission to completion of each; and how often they were started in all."""
    with lab(tmp_path, cluster, policy="") as made:
        shutil.copy(SCRIPT, made.work / "train.py")
        (made.work / "scaled.py").write_text(SCALED, encoding="ascii")
        jobs: list[int] = []

        def submit(training: Training) -> None:
            more = {"gpus": f"1-{MOST}", "launcher": "per-gpu", "uses_library": True, "epochs": training.epochs}
            jobs.append(made.submit(name=training.name, command=list(COMMAND), **more))

        def views() -> list[dict[str, Any]]:
            return [made.job(job) for job in jobs]

        submitted(found, submit)
        eventually(lambda: all(view["ended_s"] for view in views()), PATIENT_S, every_s=3.0)
        ended = views()
        assert {view["state"] for view in ended} == {"completed"}
        made.until_nothing_is_left()
        return [view["ended_s"] - view["submitted_s"] for view in ended], sum(view["attempts"] for view in ended)


def test_trainings_end_sooner_than_as_plain_jobs_on_no_more_gpus_than_there_are(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.as_daemon()  # makes the namespace
    found = trainings(TRAININGS)
    directory = tmp_path / "plain"
    directory.mkdir()
    shutil.copy(SCRIPT, directory / "train.py")
    (directory / "scaled.py").write_text(SCALED, encoding="ascii")
    shutil.copytree(ship.ship(tmp_path / "sdk"), directory / "sdk")
    with watched(cluster) as plain:
        jobs_s = as_plain_jobs(cluster, directory, found)
    with watched(cluster) as swell:
        swell_s, starts = by_swell(tmp_path, cluster, found)
    better = mean(jobs_s) / mean(swell_s)
    print(f"\n{TRAININGS} trainings of {sum(t.epochs for t in found) * EPOCH_S:.0f} s on one GPU; {starts} starts")
    for name, times, gpus in (("Jobs", jobs_s, plain), ("Swell", swell_s, swell)):
        print(f"{name}: mean {mean(times):.0f} s, longest {max(times):.0f} s, {gpus.utilisation():.0%} of GPUs bound")
    print(f"mean completion {better:.2f} times better; at most {max(plain.most, swell.most)} GPUs bound per node")
    assert max(plain.most, swell.most) <= GPUS
    assert better >= BETTER
