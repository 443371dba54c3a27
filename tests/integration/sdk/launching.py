"""Runs a job's attempts from `build_launch` requests, against the fake daemon: what a daemon and its executor would do,
without either, so that a test can resize and preempt as fast as the training can follow."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration.sdk.fake_daemon import FakeDaemon
from integration.sdk.stable import Stable
from swell.core.agreement import Agreement
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.request import LaunchContext, build_launch

STOPPED = 85
TO_BE_STOPPED = Agreement(asked=True, tried=4)
"""Asked for before the training begins, so that none is too fast for it. The first place that is proposed lies 32 steps
(or 16 epochs) ahead, as if four nearer ones had been overrun."""
NODE = Node(name="here", gpus=tuple(Gpu(index=index) for index in range(8)), cpus=8)


@dataclass
class Attempts:
    """One job, attempt after attempt. `script` is what its command runs."""

    stable: Stable
    daemon: FakeDaemon
    spec: JobSpec
    script: Path
    home: Path
    sdk: Path
    attempt: int = 0
    epochs_done: int = 0
    pids: list[int] = field(default_factory=list)

    def start(self, workers: int, arguments: Sequence[str] | None = None, agreement: Agreement | None = None) -> None:
        """`arguments` of the script; None: what the command has after the script's name. `agreement`: what the daemon
        wants from the start; `TO_BE_STOPPED` of a training that must not be over before it is asked."""
        self.attempt += 1
        self.daemon.agreement = agreement or Agreement()
        allocation = Allocation(parts=(Part(node="here", gpus=tuple(range(workers))),))
        record = JobRecord(
            id=1,
            spec=self.spec,
            submitted_s=0.0,
            run=Run(id=RunId(1, self.attempt), allocation=allocation, planned_s=0.0),
            attempts=self.attempt,
            epochs_done=self.epochs_done,
        )
        launch = build_launch(record, {"here": NODE}, {"here": self._context()})
        logs = self.home / "runs" / str(launch.run)
        logs.mkdir(parents=True)
        self.pids = [
            self.stable.start(
                [str(self.script), *(worker.argv[2:] if arguments is None else arguments)],
                {"PATH": os.environ["PATH"], **worker.env},
                self.script.parent,
                logs / f"log-{worker.rank}",
            )
            for worker in launch.workers
        ]

    def _context(self) -> LaunchContext:
        return LaunchContext(
            url=self.daemon.url,
            token="t",
            runs_dir=str(self.home / "runs"),
            checkpoints_dir=str(self.home / "checkpoints"),
            work_dir=str(self.home / "work"),
            sdk_dir=str(self.sdk),
        )

    def wait_until_begun(self, timeout_s: float = 60.0) -> None:
        """The library has said that the attempt's first epoch begins (or the attempt has ended already)."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            if any(body.get("began") for body in self.daemon.reports):
                return
            if all(self.stable.wait(pid, 0) is not None for pid in self.pids):
                return
            time.sleep(0.005)
        raise TimeoutError(f"attempt {self.attempt} did not begin: {self.log(0)}")

    def ask_to_stop(self) -> None:
        self.daemon.ask()

    def kill(self, number: int = signal.SIGKILL) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def ended(self, timeout_s: float = 60.0) -> list[int | None]:
        """Exit codes of all workers; what they reported of epochs is taken in."""
        codes = [self.stable.wait(pid, timeout_s) for pid in self.pids]
        for entry in self.daemon.epochs():
            self.epochs_done = max(self.epochs_done, entry["epoch"])
        self.daemon.reports.clear()
        return codes

    def log(self, rank: int) -> str:
        path = self.home / "runs" / f"1.{self.attempt}" / f"log-{rank}"
        return path.read_text() if path.exists() else ""

    def lines(self) -> list[str]:
        """What rank 0 printed, over all attempts."""
        found = []
        for attempt in range(1, self.attempt + 1):
            path = self.home / "runs" / f"1.{attempt}" / "log-0"
            found += path.read_text().splitlines()
        return found
