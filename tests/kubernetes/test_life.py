"""One training on a real cluster: grown, shrunk, preempted, moved, finished; nothing lost, repeated or left."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import eventually
from kubernetes.cluster import Cluster
from kubernetes.lab import PATIENT_S, lab

pytestmark = [pytest.mark.kubernetes, pytest.mark.alone, pytest.mark.timeout(420)]
EPOCHS = 500


def test_a_training_grows_shrinks_is_preempted_and_moved_and_loses_nothing(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        big, small = found.hold(4), found.hold(3)
        found.until(big, "running")
        found.until(small, "running")
        job = found.train(EPOCHS)
        found.until_gpus(job, 1)
        found.until_epochs(job, 2)
        found.daemon.post(f"/v1/jobs/{small}/cancel")
        found.until_gpus(job, 3)
        found.until_epochs(job, 2)
        urgent = found.hold(3, priority="urgent")
        found.until(urgent, "running")
        found.until_gpus(job, 1)
        found.until_epochs(job, 2)
        whole = found.hold(1, priority="urgent")
        found.until(whole, "running")
        found.until(job, "queued")
        for other in (urgent, whole, big):
            found.daemon.post(f"/v1/jobs/{other}/cancel")
        found.until(job, "running")
        found.until_epochs(job, 2)
        (node,) = found.nodes(job)
        found.daemon.post(f"/v1/nodes/{node}/drain")
        eventually(
            lambda: found.nodes(job) and node not in found.nodes(job),
            PATIENT_S,
            what=f"moved off {node}: {found.job(job)}",
            every_s=0.3,
        )
        found.daemon.post(f"/v1/nodes/{node}/uncordon")
        found.hurry(job)
        found.until(job, "completed")
        lines = found.check(job, EPOCHS)
        assert {workers for _, _, workers in lines} >= {1, 3}
        found.until_nothing_is_left()
