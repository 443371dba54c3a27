"""Moves checkpoints of an executor's runs: to the machines of a new run, and to the daemon's store while a run goes on.

`swell.checkpoints` transfers the files; this module knows machines and directories, and reports the results. `hosts`
calls it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace

from swell.checkpoints.carrying import Brought, Carrier, Copied, Target
from swell.checkpoints.holder import Spot
from swell.core.containers import outside
from swell.core.evolve import evolve
from swell.core.observations import CheckpointKept, Rewound, RunFetching
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.executors.places import Floor
from swell.executors.request import LaunchContext, checkpoints, directory
from swell.ports import Order

SHARED = "its directory is shared by these machines"


def spot_of(record: JobRecord, context: LaunchContext) -> Spot:
    """Where a job saves on a machine. A script without the library may save in a directory that its user specified."""
    own, named = checkpoints(record, context), ""
    if record.spec.checkpoint_dir and not record.uses_library:
        named = outside(record.spec, posixpath.join(directory(record, context), record.spec.checkpoint_dir))
    return Spot(own=outside(record.spec, own), named=named)


class Carriage:
    """`context_of`: the context of a machine by its name; only its directories are used. It raises OSError if they are
    not known yet."""

    def __init__(self, carrier: Carrier, floor: Floor, context_of: Callable[[str], LaunchContext]) -> None:
        self.carrier = carrier
        self._floor = floor
        self._context_of = context_of

    def target(self, record: JobRecord, node: str) -> Target:
        spot = spot_of(record, self._context_of(node))
        return Target(node=node, holder=self._floor.place(node).transport.holder, spot=spot)

    # ---- when a run begins ----

    async def brought(self, order: Order) -> Order:
        """The order, updated by the checkpoint that its machines really have. The same object: nothing was to do."""
        record, home = order.record, order.home
        if not (record.has_saved or _may_have_saved(record)) or (
            home is not None and self._is_one_machine(home, order)
        ):
            return order
        self._tell_fetching(order, f"its checkpoint is brought from {record.files_on}")
        targets = {name: self.target(record, name) for name in order.nodes}
        found = await self.carrier.bring(record, targets, home)
        self._tell_fetching(order, "")
        return self._with(order, found)

    def _is_one_machine(self, home: Node, order: Order) -> bool:
        """Whether both are slots of the daemon's own machine, which share one directory."""
        return home.executor == "local" and all(node.executor == "local" for node in order.nodes.values())

    def _tell_fetching(self, order: Order, detail: str) -> None:
        self._floor.tell(RunFetching(run=order.run, at_s=self._floor.clock.now_s(), detail=detail))

    def _with(self, order: Order, found: Brought) -> Order:
        now_s, record = self._floor.clock.now_s(), order.record
        if found.copied is not None:
            self._floor.tell(_kept(record, found.copied, now_s))
        if found.epoch is None:
            return replace(order)
        if found.epoch < record.epochs_done:
            self._floor.tell(Rewound(run=order.run, epoch=found.epoch, at_s=now_s, why=found.why))
        return replace(order, record=evolve(record, epochs_done=found.epoch, epochs_saved=found.epoch))

    # ---- while it runs ----

    async def copy(self, order: Order, others: Mapping[str, Node]) -> CheckpointKept | None:
        """See `ports.Checkpoints`. Only a directory with an absolute path can be shared by several machines: all others
        are below Swell's own, which is on a local disk."""
        record, now_s = order.record, self._floor.clock.now_s()
        at = self.target(record, next(iter(order.nodes)))
        shared: tuple[str, ...] = ()
        if record.spec.checkpoint_dir.startswith("/"):
            asked = {name: self.target(record, name) for name in others if name in self._floor.others}
            shared = await self.carrier.shared_by(record, at, asked)
            if asked and len(shared) == len(others):
                return CheckpointKept(job=record.id, at_s=now_s, epoch=0, problem=SHARED, shared_by=shared)
        copied = await self.carrier.copy(record, at, over=False)
        news = copied.new or copied.problem or (record.copy is not None and record.copy.shared_by != shared)
        return replace(_kept(record, copied, now_s), shared_by=shared) if news else None


def _may_have_saved(record: JobRecord) -> bool:
    """Whether it may have a checkpoint without a report of it, because the connection was down."""
    return record.attempts > 1 and record.resumable and bool(record.files_on)


def _kept(record: JobRecord, copied: Copied, now_s: float) -> CheckpointKept:
    found = copied.manifest
    if found is None:
        return CheckpointKept(job=record.id, at_s=now_s, problem=copied.problem)
    return CheckpointKept(job=record.id, at_s=now_s, epoch=found.epoch, bytes=found.size)
