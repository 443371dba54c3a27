"""Cordons machines on which runs keep failing to start. Pure; called by `deadlines` at every pass.

One job that cannot start is that job's trouble. Three different ones in a row on one machine are the machine's: a disk
that turned read-only, an environment that is gone. It takes nothing new until a person has looked (`node uncordon`).
"""

from __future__ import annotations

from swell.core import events as ev
from swell.core.events import Event
from swell.core.resources import Node, NodeCondition
from swell.core.state import JobRecord, State

STARTS = 3
"""Number of different jobs in a row."""


def due(state: State, now_s: float) -> list[Event]:
    """Only machines with a boot id: the daemon's own is never cordoned for mistakes in a command."""
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
    """The same command of the same user, submitted again or as an array, counts once: it may just be wrong."""
    return len({(job.spec.user, job.spec.command) for job in jobs})


def _why(node: Node, jobs: list[JobRecord]) -> str:
    *others, last = (str(job.id) for job in jobs)
    message = jobs[-1].run.message if jobs[-1].run is not None else ""
    because = f" (the last: {message})" if message else ""
    return (
        f"jobs {', '.join(others)} and {last} failed to start here one after the other{because}; "
        f"look at the machine, then `swell node uncordon {node.name}`"
    )
