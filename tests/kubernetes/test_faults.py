"""What goes wrong with clusters: nothing is lost, done twice or left behind, and nobody is blamed for it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from harness import eventually
from kubernetes.cluster import Cluster
from kubernetes.lab import OWN_NODE, PATIENT_S, Lab, lab

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(420)]
EPOCHS = 60
PAUSE = "docker.io/local/pause:1"


def begun(found: Lab, epochs: int = EPOCHS) -> int:
    job = found.train(epochs, gpus=2, nodes=[OWN_NODE])
    found.until(job, "running")
    found.until_epochs(job, 2)
    return job


def finished(found: Lab, job: int, epochs: int = EPOCHS, *, exact: bool = True) -> None:
    found.hurry(job)
    found.until(job, "completed")
    found.check(job, epochs, exact=exact)
    assert found.job(job)["failures"] == 0
    found.until_nothing_is_left()


def test_a_daemon_that_is_killed_adopts_its_pods(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        job = begun(found)
        for _ in range(3):
            found.daemon.kill()
            found.daemon.start()
            found.until_epochs(job, 2)
        assert found.job(job)["attempts"] == 1, "it never stopped"
        finished(found, job)


def test_a_training_that_ends_while_no_daemon_is_there_has_ended(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        job = begun(found, 20)
        found.daemon.kill()
        found.hurry(job)
        eventually(
            lambda: "Succeeded" in found.kubectl("get", "pods", "-l", found.label_of(job), "-o", "jsonpath={..phase}"),
            PATIENT_S,
            every_s=0.5,
        )
        found.daemon.start()
        finished(found, job, 20)
        assert found.job(job)["attempts"] == 1


def test_a_pod_that_somebody_deletes_goes_on_from_its_checkpoint(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        job = begun(found)
        found.kubectl("delete", "pods", "-l", found.label_of(job), "--wait=false")
        eventually(lambda: found.job(job)["attempts"] == 2, PATIENT_S, what="tried again", every_s=0.3)
        first = found.daemon.get(f"/v1/jobs/{job}/runs")["runs"][0]
        assert "somebody other than Swell" in first["message"]
        finished(found, job, exact=False)


def test_a_container_that_is_killed_is_tried_again_without_blame(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        job = begun(found)
        os.kill(found.trainers(job)[0], signal.SIGKILL)
        eventually(lambda: found.job(job)["attempts"] == 2, PATIENT_S, what="tried again", every_s=0.3)
        finished(found, job, exact=False)


@pytest.mark.alone
def test_an_api_server_that_is_away_for_half_a_minute_changes_nothing(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        job = begun(found, 200)
        paused = cluster.pid("apiserver")
        os.kill(paused, signal.SIGSTOP)
        try:
            gone_s = time.monotonic()
            eventually(
                lambda: {node["contact"] for node in found.daemon.get("/v1/nodes")["nodes"]} == {"here", "away"},
                60.0,
                what="its nodes are away",
                every_s=0.5,
            )
            found.until_epochs(job, 2)
            time.sleep(max(0.0, 30.0 - (time.monotonic() - gone_s)))  # the outage itself
        finally:
            os.kill(paused, signal.SIGCONT)
        eventually(
            lambda: {node["contact"] for node in found.daemon.get("/v1/nodes")["nodes"]} == {"here"}, 90.0, every_s=0.5
        )
        assert found.job(job)["attempts"] == 1
        finished(found, job, 200)


def test_an_image_that_is_not_there_is_named(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        missing = found.submit(command="true", gpus=1, image="docker.io/swell/no-such-image:1")
        found.until(missing, "failed")
        message = found.job(missing)["message"]
        assert "its image cannot be had" in message
        assert "no-such-image" in message
        found.until_nothing_is_left()


@pytest.mark.alone
def test_pods_of_others_are_counted_and_never_touched(tmp_path: Path, cluster: Cluster) -> None:
    container = {"name": "theirs", "image": PAUSE, "resources": {"limits": {"nvidia.com/gpu": "3"}}}
    limits = json.dumps({"spec": {"containers": [container]}})
    with lab(tmp_path, cluster) as found:
        cluster.kubectl("run", "theirs", f"--image={PAUSE}", "--restart=Never", f"--overrides={limits}")
        try:
            eventually(lambda: taken(found) == 3, PATIENT_S, what="three GPUs are others'", every_s=0.3)
            jobs = [found.hold(4), found.hold(1)]
            for job in jobs:
                found.until(job, "running")
            assert taken(found) == 3
            for job in jobs:
                found.daemon.post(f"/v1/jobs/{job}/cancel")
            found.until_nothing_is_left()
            assert cluster.kubectl("get", "pod", "theirs", "-o", "jsonpath={.status.phase}") == "Running"
        finally:
            cluster.kubectl("delete", "pod", "theirs", "--grace-period=1")


def taken(found: Lab) -> int:
    return sum(gpu["others"] for node in found.daemon.get("/v1/nodes")["nodes"] for gpu in node["gpus"])
