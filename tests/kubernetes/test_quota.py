"""A ResourceQuota on a real cluster: what is beyond it waits with the reason, and no pod is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import eventually
from kubernetes.cluster import NAMESPACE, Cluster
from kubernetes.lab import PATIENT_S, lab

pytestmark = [pytest.mark.kubernetes, pytest.mark.alone]  # a quota concerns all that runs in the namespace
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": NAMESPACE},
    "spec": {"hard": {"requests.nvidia.com/gpu": "2"}},
}


def test_jobs_beyond_the_quota_wait_with_the_reason_and_start_when_it_is_raised(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.as_daemon()  # makes the namespace
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(QUOTA))
    try:
        with lab(tmp_path, cluster) as it:
            first, second = it.hold(2), it.hold(1)
            it.until(first, "running")
            eventually(lambda: "ResourceQuota few" in it.job(second)["why"], PATIENT_S, what="the reason is shown")
            assert it.job(second)["state"] == "queued"
            raised = json.dumps({"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}})
            it.kubectl("patch", "resourcequota", "few", "--type=merge", "-p", raised)
            it.until(second, "running")
            assert it.job(second)["attempts"] == 1, "nothing was created before it was allowed"
            for job in (first, second):
                it.daemon.post(f"/v1/jobs/{job}/cancel")
                it.until(job, "cancelled")
            assert not it.daemon.get("/v1/health")["findings"], "the daemon may read what it needs"
    finally:
        cluster.kubectl("delete", "resourcequota", "few", "-n", NAMESPACE)
