"""Where a job may continue: anywhere, or only on the machines with its files. Pure; called by the snapshotter and by
explain.

A job that has saved nothing may begin anywhere. One whose checkpoint can be copied may run anywhere, as long as a
machine that has it answers, or the daemon's store has a copy. All others stay with their files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swell.core.job import IfUnreachable
from swell.core.resources import Contact, Node
from swell.core.state import JobRecord

COPIED_FROM = frozenset({"local", "ssh"})
"""Executors whose machines keep files of jobs. Pods have volumes of their cluster."""
OPTED_OUT = "it has copy_checkpoints: false"
NO_COPY = "no copy of its checkpoint was made in time"
WAITS = "it has if_unreachable: wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The only machines that have, or see, its files, and for people, why it cannot run elsewhere."""

    nodes: tuple[str, ...]
    why: str


def stay_of(record: JobRecord, nodes: Mapping[str, Node]) -> Stay | None:
    """None: it may run anywhere."""
    home = nodes.get(record.files_on)
    if home is None or home.executor not in COPIED_FROM or not record.has_saved:
        return None
    lost, wanted = home.contact is Contact.LOST, record.spec.if_unreachable
    if lost and wanted is IfUnreachable.MOVE:
        return None
    why = _why(record, lost, wanted)
    return Stay(nodes=_seen_by(record, home, nodes), why=why) if why else None


def files_seen(record: JobRecord, node: Node) -> bool:
    """Whether Swell sees each checkpoint that the job writes there: it looks at local ones and copies remote ones."""
    if node.executor == "ssh":
        return record.spec.copy_checkpoints and not (record.copy is not None and record.copy.problem)
    return node.executor == "local"


def may_stay(record: JobRecord) -> bool:
    """A quick test whether `stay_of` can be other than None: of thousands of running jobs it can for few."""
    problem = record.copy is not None and bool(record.copy.problem)
    return record.has_saved and (not record.holding or problem or not record.spec.copy_checkpoints)


def _why(record: JobRecord, lost: bool, wanted: IfUnreachable) -> str:
    if lost and wanted is IfUnreachable.WAIT:
        return WAITS
    if not record.spec.copy_checkpoints:
        return OPTED_OUT
    if record.copy is not None and record.copy.problem:
        return record.copy.problem
    return NO_COPY if lost and record.copy is None else ""


def _seen_by(record: JobRecord, home: Node, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """The machines that see its files. All local nodes are slots of the daemon's own machine."""
    if home.executor == "local":
        return tuple(sorted(name for name, node in nodes.items() if node.executor == "local"))
    shared = record.copy.shared_by if record.copy is not None else ()
    return (home.name, *(name for name in shared if name in nodes and name != home.name))
