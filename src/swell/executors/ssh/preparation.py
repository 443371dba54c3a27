"""Preparation of launches on machines over SSH: the in-job library, a copy of the submitted files and the job's
directories are brought to each machine, once. Nothing of the daemon's own environment goes there."""

from __future__ import annotations

import asyncio
import io
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from swell.core.ids import RunId
from swell.core.job import Launcher
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.executors.container import ContainerSettings
from swell.executors.request import LaunchContext, build_launch, port_of
from swell.executors.ssh.bundle import Archive
from swell.executors.ssh.transport import SshTransport
from swell.ports import Launch, Order, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class SshPreparation:
    """`snapshot`: the archive of submitted files of this name."""

    cluster_id: str
    token_of: Callable[[RunId], str]
    snapshot: Callable[[str], Path]
    library: Archive
    containers: ContainerSettings = field(default_factory=ContainerSettings)

    async def __call__(self, order: Order, transports: Mapping[str, SshTransport]) -> Launch:
        names = list(order.nodes)
        contexts = await asyncio.gather(*(self._context(order, transports[name]) for name in names))
        contexts = [await self._with_port(order, contexts[0], transports[names[0]]), *contexts[1:]]
        launch = build_launch(order.record, order.nodes, dict(zip(names, contexts, strict=True)))
        sdk_dirs = {name: context.sdk_dir for name, context in zip(names, contexts, strict=True)}
        workers = (at_home(worker, order.nodes[worker.node], sdk_dirs[worker.node]) for worker in launch.workers)
        return replace(launch, workers=tuple(workers))

    async def _context(self, order: Order, transport: SshTransport) -> LaunchContext:
        sdk_dir = await self._prepared(order.record, transport)
        return replace(
            context_in(transport.cluster),
            url=transport.daemon_url,
            token=self.token_of(order.run),
            sdk_dir=sdk_dir,
            containers=self.containers,
        )

    async def _prepared(self, record: JobRecord, transport: SshTransport) -> str:
        """Prepare the job there, with one request if the machine has all archives. Returns the path of the library."""
        for _ in range(2):
            names = {"files": record.spec.files, "library": self.library.name}
            found = await transport.prepare(record.id, self._stamp(record), **names)
            if not found.need:
                return found.library
            for name in found.need:
                with self._opened(name) as file:
                    await transport.bring(name, file)
        raise OSError(
            "the files of the job are deleted there as soon as they are brought; see whether its disk is full"
        )

    def _opened(self, name: str) -> IO[bytes]:
        return io.BytesIO(self.library.data) if name == self.library.name else self.snapshot(name).open("rb")

    async def _with_port(self, order: Order, first: LaunchContext, transport: SshTransport) -> LaunchContext:
        """The context with a port of the first machine, where the processes meet: only that machine knows which ports
        are free."""
        if order.record.spec.launcher is Launcher.SINGLE:
            return first
        port = await transport.ports(order.run, port_of(order.run, first.runs_dir))
        return replace(first, master_port=port)

    def _stamp(self, record: JobRecord) -> dict[str, object]:
        return {"cluster": self.cluster_id, "job": record.id, "submitted_s": record.submitted_s}


def context_in(cluster: str) -> LaunchContext:
    """The context of a machine on which `cluster` is the directory of this cluster."""
    return LaunchContext(
        url="",
        token="",
        runs_dir=posixpath.join(cluster, "runs"),
        checkpoints_dir=posixpath.join(cluster, "checkpoints"),
        work_dir=posixpath.join(cluster, "work"),
        sdk_dir="",
    )


def at_home(worker: Worker, node: Node, sdk_dir: str) -> Worker:
    """The worker with the operator's settings for its start: the machine's interpreter, after lines of shell. The
    command follows as arguments, so that shell reads no text of a job."""
    ssh = node.ssh
    if ssh is None or worker.image:
        return worker
    if "/" in ssh.python and "SWELL_PYTHON" not in worker.env:
        env = {**worker.env, "SWELL_PYTHON": ssh.python}
        worker = replace(worker, env=env, path_first=(posixpath.join(sdk_dir, "bin"), *worker.path_first))
    if not ssh.setup:
        return worker
    lines = "\n".join(("set -e", *ssh.setup, "set +e", 'exec "$@"'))
    return replace(worker, argv=("bash", "-c", lines, "setup", *worker.argv))
