"""Preparation of launches on the daemon's own machine: the job's directory with its copy of the submitted files, and
the request of each worker. Idempotent. `hosts` calls it in a thread, because a copy may be large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from swell.core.ids import RunId
from swell.core.job import Launcher
from swell.executors.container import ContainerSettings
from swell.executors.ownership import hand_over
from swell.executors.request import PORT_BLOCKS, PORTS_FROM, PORTS_PER_RUN, LaunchContext, build_launch, port_of
from swell.ports import Launch, Order
from swell.shim.ports import ports_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPreparation:
    """`deliver(snapshot, directory)` puts a copy of submitted files there, once."""

    url: str  # where the in-job library reaches the daemon
    token_of: Callable[[RunId], str]
    deliver: Callable[[str, Path], object]
    runs_dir: Path
    checkpoints_dir: Path
    work_dir: Path
    sdk_dir: Path
    as_submitter: bool = False  # jobs run as the machine's user of the same name as theirs
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    active_file: str = ""  # has the daemon's address, after another one has taken over

    def __call__(self, order: Order) -> Launch:
        record = order.record
        own = self.work_dir / str(record.id)
        if record.spec.files:
            self.deliver(record.spec.files, own)
        else:
            own.mkdir(mode=0o700, exist_ok=True)
        context = self.context(order.run)
        if self.as_submitter:
            hand_over(record, context)
        return build_launch(record, order.nodes, dict.fromkeys(order.nodes, self._with_port(order, context)))

    def _with_port(self, order: Order, context: LaunchContext) -> LaunchContext:
        if order.record.spec.launcher is Launcher.SINGLE:
            return context
        folder, first = str(self.runs_dir / str(order.run)), port_of(order.run, context.runs_dir)
        return replace(context, master_port=ports_of(folder, first, PORTS_PER_RUN, PORTS_FROM, PORT_BLOCKS))

    def context(self, run: RunId) -> LaunchContext:
        return LaunchContext(
            url=self.url,
            token=self.token_of(run),
            runs_dir=str(self.runs_dir),
            checkpoints_dir=str(self.checkpoints_dir),
            work_dir=str(self.work_dir),
            sdk_dir=str(self.sdk_dir),
            submit_shell=True,
            as_submitter=self.as_submitter,
            containers=self.containers,
            active_file=self.active_file,
        )
