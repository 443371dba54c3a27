"""A real cluster of two nodes for these tests, started by the script that lies beside the project."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kubernetes import image

ROOT = Path(__file__).resolve().parents[2]
NODES, GPUS = 2, 4
NAMESPACE = "swell"
RBAC, CRD = ROOT / "deploy/kubernetes/rbac.yaml", ROOT / "deploy/helm/swell/crds/swelljobs.yaml"
BRIDGE, GATEWAY, PREFIX = "kt0", "10.250.0.1", 16
"""What the pods of all nodes are plugged into, and this machine's own address on it."""
NEEDED = ("etcd", "containerd", "runc", "ip", "iptables", "conntrack", "gcc", "openssl", "curl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    directory: Path

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def kubectl(self, *words: str, stdin: str = "") -> str:
        told = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    def apply(self, manifest: Path) -> None:
        """One process at a time: two that create the same object at once are answered `AlreadyExists`."""
        with (self.directory / "apply.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.kubectl("apply", "-f", str(manifest))

    @property
    def server(self) -> str:
        return str(yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"])

    def as_daemon(self, server: str = "") -> Path:
        """A kubeconfig with exactly the permissions that deploy/kubernetes gives the daemon. `server`: by that way."""
        self.apply(RBAC)
        token = self.kubectl("create", "token", "swell", "-n", NAMESPACE, "--duration=2h").strip()
        config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        config["users"] = [{"name": "swell", "user": {"token": token}}]
        config["contexts"][0]["context"] |= {"user": "swell", "namespace": NAMESPACE}
        config["clusters"][0]["cluster"] = {"server": server} if server else config["clusters"][0]["cluster"]
        path = self.directory / f"kubeconfig-swell-{os.getpid()}"  # several tests may run at once
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def pid(self, name: str) -> int:
        return int((self.directory / f"{name}.pid").read_text(encoding="ascii"))


def script() -> Path | None:
    """Where the program is that starts clusters: $SWELL_SHARED/kube, or `shared/kube` beside the project."""
    named = [Path(os.environ["SWELL_SHARED"])] if "SWELL_SHARED" in os.environ else []
    beside = [parent / "shared" for parent in ROOT.parents]
    return next((path / "kube/cluster" for path in (*named, *beside) if (path / "kube/cluster").exists()), None)


def why_not() -> str:
    """Why there can be no cluster here; empty if there can."""
    if script() is None:
        return "no program that starts a cluster (shared/kube/cluster beside the project, or $SWELL_SHARED)"
    if os.geteuid() != 0:
        return "a cluster needs root"
    absent = [name for name in (*NEEDED, "kubectl") if shutil.which(name) is None]
    return f"a cluster needs {', '.join(absent)}; `make system-packages`" if absent else image.missing()


@contextmanager
def running() -> Iterator[Cluster]:
    """$SWELL_TEST_CLUSTER names the directory of one that runs already (and stays)."""
    if "SWELL_TEST_CLUSTER" in os.environ:
        yield Cluster(directory=Path(os.environ["SWELL_TEST_CLUSTER"]))
        return
    if reason := why_not():
        pytest.skip(reason)
    starts = str(script())
    directory = Path(tempfile.mkdtemp(prefix="swell-kube-")) / "cluster"
    env = _env(directory.parent / "tools")
    try:
        subprocess.run([starts, "up", str(directory), str(NODES), str(GPUS)], env=env, check=True, timeout=300)
        subprocess.run([starts, "load", str(directory), str(image.archive())], check=True, timeout=120)
        _bridge()
        yield Cluster(directory=directory)
    finally:
        subprocess.run([starts, "down", str(directory)], check=False, timeout=120)
        shutil.rmtree(directory.parent, ignore_errors=True)


def _env(tools: Path) -> dict[str, str]:
    """Nodes with logs of their own: see own_logs.sh."""
    tools.mkdir()
    (tools / "nohup").symlink_to(Path(__file__).with_name("own_logs.sh"))
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}


def _bridge() -> None:
    """The first pod would make it; a daemon whose address is on it, and its probes, are there before any pod."""
    there = subprocess.run(["ip", "link", "show", BRIDGE], capture_output=True, check=False).returncode == 0
    if not there:
        subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "replace", f"{GATEWAY}/{PREFIX}", "dev", BRIDGE], check=True)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
