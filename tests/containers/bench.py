"""The executor suite's world, with every worker in a container."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from containers.images import OPTIONS, busybox, ours
from contract.executor_benches import SHELL, AgentBench, LocalBench, RealClock, as_is, far_executor
from harness import eventually
from ssh.bench import dial_to
from ssh.machines import Machine
from swell.core.ids import RunId
from swell.core.resources import Node
from swell.executors.container import ContainerSettings, Own, container_of
from swell.executors.local import LocalExecutor
from swell.executors.tracking import Tuning
from swell.ports import Executor, Launch, Order, Worker
from swell.shim.ask import is_over

ACTS = {
    **SHELL,
    "killed": (
        "sh",
        "-c",
        'sh -c "kill -SEGV \\$\\$" 2>/dev/null; exit $?',
    ),  # the first process of a container cannot kill itself
}


class ContainerBench(LocalBench):
    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.home = home
        self.image = busybox()
        self.settings = ContainerSettings(
            cluster_id=secrets.token_hex(8), options=OPTIONS, mount_sources=(str(home),), pull_timeout_s=60.0
        )

    def executor(self) -> Executor:
        return LocalExecutor(
            self.runs, RealClock(), self._contained, tuning=Tuning(poll_s=0.3, straggler_s=0.2), job_dirs=()
        )

    def left(self) -> list[str]:
        """Containers of this bench that there are."""
        return ours(**{"swell.cluster": self.settings.cluster_id})

    def settle(self) -> None:
        """Wait until nobody holds a worker of this bench any more."""
        eventually(lambda: all(is_over(str(lock.parent)) for lock in self.runs.glob("*/*/lock")), 60.0)

    def _contained(self, order: Order) -> Launch:
        launch = as_is(order)
        return replace(launch, workers=tuple(self.worker(launch.run, worker) for worker in launch.workers))

    def worker(self, run: RunId, worker: Worker) -> Worker:
        act = next((name for name, argv in SHELL.items() if argv == worker.argv), "")
        worker = replace(worker, image=worker.image or self.image, argv=ACTS.get(act, worker.argv))
        container = container_of(run, worker, Node(name="here"), self.own(run), self.settings)
        return replace(worker, container=container)

    def own(self, run: RunId) -> Own:
        return Own(
            work_dir=str(self.home / "work" / str(run.job)),
            checkpoints_dir=str(self.home / "checkpoints" / str(run.job)),
            sdk_dir=str(self.home),
            journal=str(self.runs / str(run) / "epochs"),
        )


class FarContainerBench(ContainerBench):
    """Another machine, through an agent over a real sshd. `home` has one path on the machine and here."""

    def __init__(self, home: Path, machine: Machine) -> None:
        super().__init__(home)
        self.machine = machine
        self.runs = AgentBench(home).runs

    def executor(self) -> Executor:
        return far_executor(self.home, dial_to(self.machine), self._contained)

    def left(self) -> list[str]:
        words = ("ps", "--all", "--format={{.Names}}", f"--filter=label=swell.cluster={self.settings.cluster_id}")
        return self.machine.run("podman", *words, user="root").split()
