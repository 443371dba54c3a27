"""`kubectl apply`, `get` and `delete` of a SwellJob on a real cluster, by the permissions that are deployed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness import eventually
from kubernetes import image
from kubernetes.cluster import CRD, NAMESPACE, Cluster
from kubernetes.lab import PATIENT_S, Lab, lab

pytestmark = [pytest.mark.kubernetes, pytest.mark.alone, pytest.mark.timeout(300)]


def applied(found: Lab, name: str, **spec: object) -> None:
    meta = {"name": name, "namespace": NAMESPACE}
    item = {"apiVersion": "swell.dev/v1", "kind": "SwellJob", "metadata": meta, "spec": {"image": image.NAME, **spec}}
    found.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(item))


def status(found: Lab, name: str) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(found.kubectl("get", "swelljob", name, "-o", "json")).get("status", {})
    return held


def until_state(found: Lab, name: str, state: str) -> None:
    eventually(
        lambda: status(found, name).get("state") == state,
        PATIENT_S,
        what=f"{name} is {state}: {status(found, name)}",
        every_s=0.3,
    )


def test_kubectl_submits_lists_and_cancels(tmp_path: Path, cluster: Cluster) -> None:
    cluster.apply(CRD)
    with lab(tmp_path, cluster) as found:
        applied(found, "wrong", command="true", gpuz=1)
        applied(found, "elsewhere", command="true", kubernetes={"namespace": "default"})
        applied(found, "quick", command="true", gpus=1)
        applied(found, "long", command="sleep 1000", gpus=2)
        until_state(found, "long", "Running")
        until_state(found, "quick", "Completed")
        until_state(found, "wrong", "Refused")
        until_state(found, "elsewhere", "Refused")
        assert "gpuz" in status(found, "wrong")["message"]
        listed = found.kubectl("get", "swelljobs").splitlines()
        assert listed[0].split() == ["NAME", "STATUS", "WORKERS", "WAITING", "RUNNING", "TOTAL"]
        (line,) = [line for line in listed if line.startswith("long ")]
        assert re.fullmatch(r"long +Running +2 +\d+s +\d+s +\d+s", line.strip()), line
        job = status(found, "long")["job"]
        assert found.job(job)["user"] == NAMESPACE
        found.daemon.kill()
        found.kubectl("delete", "swelljob", "long", "--wait=false")
        assert status(found, "long")["state"] == "Running", "held until its job has ended, daemon or not"
        found.daemon.start()
        found.kubectl("delete", "swelljobs", "--all", "--timeout=60s")
        assert found.job(job)["state"] == "cancelled"
        assert len(found.daemon.get("/v1/jobs?state=all")["jobs"]) == 2, "each object was one job"
        found.until_nothing_is_left()
