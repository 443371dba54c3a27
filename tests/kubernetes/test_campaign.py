"""Faults of a cluster, many times each: `SWELL_KUBERNETES_ROUNDS=20 make test-kubernetes`. Short versions: test_faults
and test_leases. Faults that only disturb the test's own jobs run beside each other.

Each round trains several jobs at once, does one thing to them, and lets them finish. A witness beside each training
writes to a shared volume when it was there: the truth about overlaps, for which Swell's own records are not asked.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import eventually
from integration.sdk.test_numpy_resized import SCRIPT, uninterrupted
from kubernetes.cluster import NODES, Cluster
from kubernetes.expiring import Relay, relay
from kubernetes.lab import OWN_NODE, PACED, PATIENT_S, Lab, lab
from kubernetes.test_leases import cut_network, stopped_kubelet
from swell.sdk import checkpoint, ship

ROUNDS = int(os.environ.get("SWELL_KUBERNETES_ROUNDS", "0"))
AT_ONCE, BESIDE_OTHERS, EPOCHS, LEASE_S, GRACE_S = 4, 2, 150, 5.0, 5
TO_THE_END_S = 120.0
"""A lease of trainings that are to succeed without a daemon, on a busy machine."""
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.chaos,
    pytest.mark.timeout(3600 * 6),
    pytest.mark.skipif(not ROUNDS, reason="takes hours: SWELL_KUBERNETES_ROUNDS=20"),
]
REMOVED = "swell: lines may be missing here: the pod's node has no more of this log"
WITNESS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.makedirs("/swell/data/truth", exist_ok=True)
child = subprocess.Popen(sys.argv[1:])
with open(f"/swell/data/truth/{os.environ['SWELL_RUN']}.{os.environ['SWELL_RANK']}", "a") as truth:
    while True:
        truth.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.3f}\\n")
        truth.flush()
        try:
            code = child.wait(0.1)
            break
        except subprocess.TimeoutExpired:
            pass
sys.exit(code if code >= 0 else 128 - code)
"""


def begun(found: Lab, *, alone: bool) -> list[int]:
    """Trainings that outlast the fault; they hurry after it. `alone`: half of them may move; the others are on another
    node, and stay there."""
    shutil.copy(SCRIPT, found.work / "train.py")
    (found.work / "witness.py").write_text(WITNESS, encoding="ascii")
    (found.work / "paced.py").write_text(PACED, encoding="ascii")
    command = ["python3", "witness.py", "python3", "paced.py", "train.py", "--steps", "2", "--work-s", "0.2"]
    job = {
        "command": command,
        "gpus": 1,
        "launcher": "per-gpu",
        "epochs": EPOCHS,
        "uses_library": True,
        "grace": GRACE_S,
    }
    nodes = [] if alone else [OWN_NODE]
    jobs = [found.submit(name="numpy", nodes=nodes, **job) for _ in range(BESIDE_OTHERS)]
    until_running(found, jobs)
    if alone:
        there = {"nodes": [beside(found, jobs[0])]}
        jobs += [found.submit(name="numpy", **there, **job) for _ in range(AT_ONCE - BESIDE_OTHERS)]
        until_running(found, jobs)
    found.until_epochs(jobs[-1], 2)
    time.sleep(random.random())
    return jobs


def until_running(found: Lab, jobs: list[int]) -> None:
    for number in jobs:
        found.until(number, "running")


def beside(found: Lab, job: int) -> str:
    """The other node."""
    (other,) = {f"node-{1 + index}" for index in range(NODES)} - found.nodes(job)
    return other


def kill_daemon(found: Lab, _: list[int]) -> None:
    found.daemon.kill()
    found.daemon.start()


def kill_container(found: Lab, jobs: list[int]) -> None:
    for job in jobs:
        for pid in found.trainers(job)[:1]:
            os.kill(pid, signal.SIGKILL)


def stop_kubelet(found: Lab, jobs: list[int]) -> None:
    with stopped_kubelet(found.cluster, sorted(found.nodes(jobs[0]))[0]):
        time.sleep(2 * LEASE_S)


def cut_node(found: Lab, jobs: list[int]) -> None:
    with cut_network(found.cluster, sorted(found.nodes(jobs[0]))[0]):
        time.sleep(LEASE_S + GRACE_S + 2.0)


def silence_both(found: Lab, jobs: list[int]) -> None:
    """The kubelet of one node is stopped beyond the lease and back, while the other node is cut, for so long that now
    and then it is lost and its trainings move."""
    cut, other = sorted(found.nodes(jobs[0]))[0], beside(found, jobs[0])
    with cut_network(found.cluster, cut):
        with stopped_kubelet(found.cluster, other):
            time.sleep(2 * LEASE_S)
        time.sleep(random.uniform(2.0, 18.0))


def stop_api_server(found: Lab, _: list[int]) -> None:
    paused = found.cluster.pid("apiserver")
    os.kill(paused, signal.SIGSTOP)
    time.sleep(30.0)
    os.kill(paused, signal.SIGCONT)


def delete_pods(found: Lab, jobs: list[int]) -> None:
    for job in jobs:
        found.kubectl("delete", "pods", "-l", found.label_of(job), "--wait=false")


def evict_after_success(found: Lab, jobs: list[int]) -> None:
    """While no daemon is there to note that they succeeded."""
    found.daemon.kill()
    for job in jobs:
        found.hurry(job)

    def ended() -> bool:
        phases = found.kubectl("get", "pods", "-l", found.label, "-o", "jsonpath={.items[*].status.phase}").split()
        return set(phases) == {"Succeeded"}

    eventually(ended, PATIENT_S, what="all have succeeded", every_s=0.5)
    delete_pods(found, jobs)
    found.daemon.start()


Fault = Callable[[Lab, list[int]], None]
OF_THE_CLUSTER: list[Fault] = [stop_kubelet, cut_node, silence_both, stop_api_server]
OF_ITS_JOBS: list[Fault] = [kill_daemon, kill_container, delete_pods, evict_after_success]


def spans(found: Lab, job: int) -> dict[int, tuple[float, float]]:
    """By attempt: when its witnesses were there."""
    times: dict[int, list[float]] = {}
    for path in found.storage.glob(f"*/{job}/truth/*"):
        attempt = int(path.name.split(".")[1])
        times.setdefault(attempt, []).extend(map(float, path.read_text(encoding="ascii").split()))
    return {attempt: (min(seen), max(seen)) for attempt, seen in times.items()}


def trained(directory: Path) -> dict[str, bytes]:
    """The weights of its last checkpoint, to the last bit; empty unless all epochs are in it."""
    found = checkpoint.load(directory)
    if found is None or found.epochs_done != EPOCHS:
        return {}
    return {name: weights.tobytes() for name, weights in found.value.items()}


def undisturbed_result(found: Lab) -> dict[str, bytes]:
    directory = found.work.parent / "undisturbed"
    directory.mkdir()
    env = {**os.environ, "PYTHONPATH": str(found.work.parent / "sdk"), "SWELL_CHECKPOINT_DIR": str(directory)}
    words = [sys.executable, str(SCRIPT), "--epochs", str(EPOCHS), "--steps", "2"]
    subprocess.run(words, env={**env, "OMP_NUM_THREADS": "1"}, capture_output=True, check=True)
    return trained(directory)


def is_whole(lines: dict[int, str], attempts: int, undisturbed: dict[int, str]) -> bool:
    """The losses are those of an undisturbed training to the last bit, which takes every epoch once. An attempt that
    was killed between saving an epoch and printing it has no line of that one."""
    unprinted = set(undisturbed) - lines.keys()
    between_attempts = all(epoch - 1 in lines and epoch + 1 in lines for epoch in unprinted)
    return lines.items() <= undisturbed.items() and between_attempts and len(unprinted) < attempts


def judge(found: Lab, job: int, undisturbed: dict[int, str], result: dict[str, bytes], counts: Counter[str]) -> None:
    """A log that its node has removed while no daemon was there to read it says so; then its checkpoint alone is
    compared."""
    view, seen = found.job(job), sorted(spans(found, job).items())
    lines = {epoch: loss for epoch, loss, _ in found.lines(job)}
    counts["jobs"] += 1
    (weights,) = found.storage.glob(f"*/{job}/checkpoints/{job}")
    removed = any(REMOVED in log.read_text() for log in found.home.glob(f"pods/{job}.*/0/log"))
    whole = is_whole(lines, view["attempts"], undisturbed)
    same = trained(weights) == result and lines.items() <= undisturbed.items()
    counts["lost"] += view["state"] != "completed" or not same or not (whole or removed)
    counts["logs removed by their node"] += removed and not whole
    counts["unprinted epochs"] += len(undisturbed) - len(lines)
    counts["blamed"] += view["failures"] > 0
    runs = found.daemon.get(f"/v1/jobs/{job}/runs")["runs"]
    counts["finished twice"] += sum(run["exit_reason"] == "finished" for run in runs) > 1
    counts["overlapping"] += sum(one[1][1] > two[1][0] for one, two in itertools.pairwise(seen))
    counts["attempts"] += view["attempts"]


def campaign(found: Lab, name: str, fault: Fault, *, alone: bool) -> None:
    counts: Counter[str] = Counter()
    undisturbed = uninterrupted(ship.ship(found.work.parent / "sdk"), EPOCHS, 2)
    result = undisturbed_result(found)
    assert result
    for _ in range(ROUNDS):
        jobs = begun(found, alone=alone)
        fault(found, jobs)
        for job in jobs:
            found.hurry(job)
        for job in jobs:
            found.until(job, "completed", "failed", "cancelled", "lost")
            judge(found, job, undisturbed, result, counts)
        found.until_nothing_is_left()
        counts["faults"] += 1
        sys.stderr.write(f"\n{name}: {dict(counts)}\n")
    bad = {name: counts[name] for name in ("lost", "blamed", "finished twice", "overlapping") if counts[name]}
    assert not bad, f"{bad} of {dict(counts)}"


@pytest.mark.alone
@pytest.mark.parametrize("fault", OF_THE_CLUSTER, ids=lambda fault: fault.__name__)
def test_never_lost_twice_overlapping_or_left(tmp_path: Path, cluster: Cluster, fault: Fault) -> None:
    with lab(tmp_path, cluster, lease_s=LEASE_S) as found:
        campaign(found, fault.__name__, fault, alone=True)


@pytest.mark.parametrize("fault", OF_ITS_JOBS, ids=lambda fault: fault.__name__)
def test_never_lost_twice_overlapping_or_left_by_what_happens_to_jobs(
    tmp_path: Path, cluster: Cluster, fault: Fault
) -> None:
    with lab(tmp_path, cluster, lease_s=TO_THE_END_S if fault is evict_after_success else LEASE_S) as found:
        campaign(found, fault.__name__, fault, alone=False)


def test_never_lost_twice_overlapping_or_left_when_watches_expire(tmp_path: Path, cluster: Cluster) -> None:
    """At the moment at which a container is killed, which only the list that follows can show."""
    with relay(cluster.server) as between, lab(tmp_path, cluster, server=between.url, lease_s=LEASE_S) as found:
        campaign(found, "expired watch", lambda found, jobs: expire_and_kill(between, found, jobs), alone=False)
        assert between.expired >= ROUNDS, f"the API server answered 410 {between.expired} times"


def expire_and_kill(between: Relay, found: Lab, jobs: list[int]) -> None:
    assert between.expire(), "no watch was open"
    kill_container(found, jobs)
