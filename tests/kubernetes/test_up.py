"""`swell up --kubernetes` on a real cluster: the daemon runs in it, and this machine's commands reach it through the
API server alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubernetes import image
from kubernetes.cluster import NAMESPACE, Cluster, script

pytestmark = [pytest.mark.kubernetes, pytest.mark.alone, pytest.mark.timeout(600)]
VOLUME = "swell-test-home"


@pytest.fixture
def installable(tmp_path: Path, cluster: Cluster) -> Iterator[Cluster]:
    """With the daemon's image and a volume for its home; afterwards without the daemon."""
    subprocess.run([str(script()), "load", str(cluster.directory), str(image.daemon_archive(tmp_path))], check=True)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 1000, 1000)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(state)},
            "claimRef": {"namespace": NAMESPACE, "name": "swell-home"},
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(volume))
    yield cluster
    things = ("deploy/swell", "service/swell", "configmap/swell-config", "secret/swell-token", "pvc/swell-home")
    cluster.kubectl("-n", NAMESPACE, "delete", "--ignore-not-found", "--timeout=50s", *things)
    cluster.kubectl("delete", "--ignore-not-found", f"pv/{VOLUME}")


def swell(home: Path, *words: str, stdin: str = "") -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("SWELL_URL", "SWELL_TOKEN", "KUBECONFIG")}
    told = subprocess.run(
        [sys.executable, "-m", "swell", *words],
        env={**env, "SWELL_HOME": str(home)},
        cwd=home.parent,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr + told.stdout
    return told.stdout


def test_up_installs_the_daemon_and_commands_reach_it_through_the_api_server(
    tmp_path: Path, installable: Cluster
) -> None:
    home = tmp_path / "home"
    options = ("--image", image.DAEMON, "--advertise", "$(POD_IP)", "--kubeconfig", str(installable.kubeconfig))
    told = swell(home, "up", "--kubernetes", *options, stdin="y\n")
    assert "kind: ClusterRole" in told, "what is created is shown first"
    assert "2 nodes, 8 GPUs" in told
    nodes: list[dict[str, Any]] = json.loads(swell(home, "nodes", "--json"))["nodes"]
    assert {node["name"] for node in nodes} == {"node-1", "node-2"}
    job = {"command": "echo trained", "image": image.NAME, "gpus": 1, "kubernetes": {}}
    (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
    swell(home, "submit", "job.json")
    swell(home, "wait", "1", "--timeout", "240")
    assert "trained" in swell(home, "logs", "-f", "1"), "streams come through as well"
    again = swell(home, "up", "--kubernetes", *options, "--yes", "--json")
    assert json.loads(again)["url"].startswith("kubernetes://")
    assert json.loads(swell(home, "ls", "--json", "--all"))["jobs"], "the same daemon as before"
