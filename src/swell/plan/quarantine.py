"""Quarantines machines on which runs keep failing to start. Pure; called by `deadlines` at every pass.

If one job cannot start, the cause is the job. If three different jobs in a row cannot, it is the machine: a disk that
turned read-only, a missing environment. It takes no new runs until a person has looked (`node uncordon`).
"""

from __future__ import annotations

from swell.core import events as ev
from swell.core.events import Event
from swell.core.resources import Node, NodeCondition
from swell.core.state import JobRecord, State

STARTS = 3
"""Number of different jobs in a row."""


def due(state: State, now_s: float) -> list[Event]:
    """Only machines with leases: the daemon's own is never quarantined for mistakes in a command."""
    found = ((node, _failed(state, node)) for node in state.nodes.values() if node.failed_starts and node.lease_s)
    return [
        ev.NodeConditionChanged(
            node=node.name, condition=NodeCondition.QUARANTINED, why=_why(node, jobs), by="swell", at_s=now_s
        )
        for node, jobs in found
        if node.condition is NodeCondition.READY and _different(jobs) >= STARTS
    ]


def _failed(state: State, node: Node) -> list[JobRecord]:
    return [state.jobs[job] for job in node.failed_starts if job in state.jobs]


def _different(jobs: list[JobRecord]) -> int:
    """The number of different jobs. The same command of the same user counts once: the command may be wrong."""
    return len({(job.spec.user, job.spec.command) for job in jobs})


def _why(node: Node, jobs: list[JobRecord]) -> str:
    *others, last = (str(job.id) for job in jobs)
    message = jobs[-1].run.message if jobs[-1].run is not None else ""
    because = f" (the last: {message})" if message else ""
    return (
        f"jobs {', '.join(others)} and {last} failed to start here one after the other{because}; "
        f"look at the machine, then `swell node uncordon {node.name}`"
    )
