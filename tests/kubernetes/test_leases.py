"""Nodes of a cluster that fall silent: a run is over for the daemon only after its pods have ended their own work."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import eventually
from kubernetes.cluster import Cluster
from kubernetes.lab import OWN_NODE, PATIENT_S, Lab, lab

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(420)]
LEASE_S, GRACE_S, EPOCHS = 5.0, 5, 40


@contextmanager
def stopped_kubelet(cluster: Cluster, node: str) -> Iterator[None]:
    kubelet = cluster.pid(f"kubelet-{node.removeprefix('node-')}")
    os.kill(kubelet, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kubelet, signal.SIGCONT)


@contextmanager
def cut_network(cluster: Cluster, node: str) -> Iterator[None]:
    """Nothing of the node reaches anybody: neither its kubelet nor its pods."""
    rule = ["-s", f"10.250.{node.removeprefix('node-')}.0/24", "-j", "DROP"]
    subprocess.run(["iptables", "-I", "INPUT", *rule], check=True)
    try:
        with stopped_kubelet(cluster, node):
            yield
    finally:
        subprocess.run(["iptables", "-D", "INPUT", *rule], check=True)


def contact(found: Lab, node: str) -> str:
    views = {view["name"]: view["contact"] for view in found.daemon.get("/v1/nodes")["nodes"]}
    return str(views[node])


def why(found: Lab, node: str) -> str:
    return str({view["name"]: view["why"] for view in found.daemon.get("/v1/nodes")["nodes"]}[node])


def begun(
    found: Lab, epochs: int = EPOCHS, work_s: float = 0.6, gpus: int = 3, nodes: Sequence[str] = ()
) -> tuple[int, str]:
    """With 3 GPUs the next such job goes to another node."""
    job = found.train(epochs, work_s=work_s, grace=GRACE_S, gpus=gpus, nodes=nodes)
    found.until(job, "running")
    found.until_epochs(job, 2)
    (node,) = found.nodes(job)
    return job, node


@pytest.mark.alone
def test_a_pod_that_is_cut_off_ends_its_work_first_and_one_whose_kubelet_is_dead_goes_on(
    tmp_path: Path, cluster: Cluster
) -> None:
    with lab(tmp_path, cluster, lease_s=LEASE_S) as found:
        kept, silent = begun(found, 10 * EPOCHS, 1.2)  # as long as all of this takes
        cut, away = begun(found)
        assert away != silent
        old = found.trainers(cut)
        with stopped_kubelet(cluster, silent):
            with cut_network(cluster, away):
                eventually(lambda: contact(found, away) == "away", PATIENT_S, what=f"{away} is away", every_s=0.3)
                assert found.job(cut)["attempts"] == 1
                eventually(lambda: contact(found, away) == "lost", PATIENT_S, what=f"{away} is lost", every_s=0.1)
                assert not set(found.trainers(cut)) & set(old), "its pods had ended their work before"
            eventually(lambda: contact(found, away) == "here", PATIENT_S, what=f"{away} is back", every_s=0.3)
            found.until(cut, "running")
            assert contact(found, silent) == "away", "its kubelet does not answer"
            found.until_epochs(kept, 2)
        eventually(lambda: contact(found, silent) == "here", PATIENT_S, what=f"{silent} is back", every_s=0.3)
        assert found.job(kept)["attempts"] == 1, "its pods reached the daemon all the time"
        first = found.daemon.get(f"/v1/jobs/{cut}/runs")["runs"][0]
        assert "the leases of its runs are over" in first["message"]
        found.daemon.post(f"/v1/jobs/{kept}/cancel")
        found.hurry(cut)
        found.until(cut, "completed")
        found.check(cut, EPOCHS, exact=False)
        assert found.job(cut)["failures"] == 0
        found.until_nothing_is_left()


def test_a_daemon_that_leaves_on_purpose_lets_its_pods_go_on(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster, lease_s=LEASE_S) as found:
        job, _ = begun(found, 10 * EPOCHS, gpus=2, nodes=[OWN_NODE])
        old = found.trainers(job)
        found.daemon.stop()
        time.sleep(2 * LEASE_S + GRACE_S)  # longer than they would have gone on
        assert set(found.trainers(job)) == set(old)
        found.daemon.start()
        found.until_epochs(job, 2)
        assert found.job(job)["attempts"] == 1
        found.daemon.post(f"/v1/jobs/{job}/cancel")
        found.until_nothing_is_left()


@pytest.mark.alone
def test_kubectl_cordon_stops_nothing_and_drain_moves_a_training_at_an_epoch(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        job = found.train(60, gpus=2, work_s=0.3)
        found.until(job, "running")
        found.until_epochs(job, 2)
        (node,) = found.nodes(job)
        try:
            cluster.kubectl("cordon", node)
            eventually(lambda: "kubectl uncordon" in why(found, node), PATIENT_S, what="it is closed", every_s=0.3)
            found.until_epochs(job, 2)
            assert found.job(job)["attempts"] == 1, "a cordon alone stops nothing"
            cluster.kubectl(
                "drain",
                node,
                "--pod-selector=swell/job",
                "--force",
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                "--timeout=50s",
            )
            eventually(lambda: found.nodes(job) - {node}, PATIENT_S, what=f"off {node}: {found.job(job)}", every_s=0.3)
        finally:
            cluster.kubectl("uncordon", node)
        found.hurry(job)
        found.until(job, "completed")
        found.check(job, 60)
        assert found.job(job)["failures"] == 0
        found.until_nothing_is_left()
