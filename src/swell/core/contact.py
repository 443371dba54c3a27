"""The rules for machines that do not answer, or answer again. Pure. `daemon.contacts` calls it.

Silence alone proves almost nothing: a run counts as ended only when its machine must have ended it by itself (its lease
has expired), when the machine was rebooted, or when a person reports that it is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swell.core import events as ev
from swell.core.events import Event, ExitReason
from swell.core.ids import RunId
from swell.core.pods import runs_pods
from swell.core.resources import Contact, Node
from swell.core.state import JobRecord, State

AWAY_AFTER_S = 15.0
"""A machine that has not answered for this long is away."""
CLOCK_DRIFT = 1.01
"""Two clocks differ by less than this factor."""
SWEEP_S = 10.0
"""Remaining processes of a run are killed within this time after its grace."""


def lease_until_s(boot_s: float, lease_s: float) -> float:
    """Until when a machine may keep runs alive, in its own clock (`boot_s`: as it reported in the request that this
    answers). Absolute, so that a delayed renewal extends nothing."""
    return boot_s + lease_s


def over_by_s(renewed_s: float, lease_s: float, grace_s: float) -> float:
    """When the runs of a machine have certainly ended, in the daemon's monotonic clock. `renewed_s`: when the daemon
    received the last request that it answered with a renewal, delivered or not; after a restart, its start."""
    return renewed_s + CLOCK_DRIFT * lease_s + grace_s + SWEEP_S


def runs_on(state: State, node: str) -> list[JobRecord]:
    """Jobs whose current run uses this node."""
    active = (state.jobs[job] for job in state.active)
    return [job for job in active if job.allocation is not None and node in job.allocation.nodes]


def grace_on(state: State, node: str) -> float:
    return max((job.spec.grace_s for job in runs_on(state, node)), default=0.0)


def stale_runs(state: State, running: Iterable[RunId]) -> list[RunId]:
    """The runs of a machine that are not current attempts."""
    return [run for run in running if not is_current(state, run)]


def is_current(state: State, run: RunId) -> bool:
    job = state.jobs.get(run.job)
    return job is not None and job.holding and job.run is not None and job.run.id == run


def away(node: Node, now_s: float) -> list[Event]:
    why = f"{node.name} has not answered for {AWAY_AFTER_S:.0f} s; its runs go on by themselves"
    return [ev.NodeContactChanged(node=node.name, contact=Contact.AWAY, at_s=now_s, why=why)]


def lost(state: State, node: str, now_s: float, why: str) -> list[Event]:
    """Events for one commit: all runs of the machine end, and it is lost. Other machines of these runs are cleaned of
    remaining workers before they take new runs."""
    jobs = runs_on(state, node)
    ends = [
        ev.RunEnded(run=job.run.id, reason=ExitReason.NODE_LOST, at_s=now_s, message=f"{node} was lost: {why}")
        for job in jobs
        if job.run is not None
    ]
    others = sorted({name for job in jobs if job.allocation for name in job.allocation.nodes} - {node})
    return [
        *ends,
        ev.NodeContactChanged(node=node, contact=Contact.LOST, at_s=now_s, why=why),
        *(_cleaned(state.nodes[name], now_s) for name in others if _answers(state, name)),
    ]


def _answers(state: State, name: str) -> bool:
    """Whether to clean it now: only machines with a boot id; those that are away are cleaned when they return."""
    node = state.nodes.get(name)
    return node is not None and bool(node.boot_id) and node.contact is Contact.HERE


def _cleaned(node: Node, now_s: float) -> Event:
    why = f"{node.name}: cleaning up what a run on several machines left"
    return ev.NodeContactChanged(node=node.name, contact=Contact.RETURNING, at_s=now_s, why=why)


def waived(state: State, now_s: float) -> list[Event]:
    """A planned stop of the daemon waives leases. Committed before any machine is notified: otherwise the daemon would
    assume that leases expire which no longer do."""
    leased = [node.name for node in state.nodes.values() if node.lease_s and node.boot_id and not node.lease_waived]
    return [ev.NodeLeaseWaived(node=name, waived=True, at_s=now_s) for name in leased]


def leased_again(node: Node, now_s: float) -> list[Event]:
    """The machine has received a lease that expires."""
    return [ev.NodeLeaseWaived(node=node.name, waived=False, at_s=now_s)] if node.lease_waived else []


def heard(state: State, node: Node, boot_id: str, running: Sequence[RunId], now_s: float) -> list[Event]:
    """A machine has answered, with what runs there."""
    if node.boot_id and boot_id != node.boot_id:
        why = f"{node.name} was booted again; nothing that ran there can have survived"
        before = [] if node.contact is Contact.LOST else lost(state, node.name, now_s, why)
        return [*before, _changed(node, Contact.RETURNING, boot_id, why, now_s)]
    stale = len(stale_runs(state, running))
    if stale and node.contact is not Contact.RETURNING:
        what = "run" if stale == 1 else "runs"
        return [_changed(node, Contact.RETURNING, boot_id, f"{node.name}: cleaning up {stale} old {what}", now_s)]
    if not stale and (node.contact is not Contact.HERE or not node.boot_id):
        return [_changed(node, Contact.HERE, boot_id, f"{node.name} is here", now_s)]
    return []


def sentence(state: State, node: Node, now_s: float) -> str:
    """For people: since when a machine does not answer, and what happens to its jobs. Empty while it answers."""
    if node.lease_s and not node.boot_id:
        return f"{node.name} has not answered yet; nothing starts there before it has"
    jobs = len(runs_on(state, node.name))
    if node.contact is Contact.AWAY:
        whose = "its job keeps" if jobs == 1 else f"its {jobs} jobs keep"
        ends = node.lease_s and not node.lease_waived
        until = _until(node, now_s) if ends else ""
        alone = f"; {whose} running without the daemon{until}" if jobs else ""
        return f"{node.name} away for {max(0.0, now_s - node.contact_s):.0f} s{alone}"
    return {
        Contact.HERE: "",
        Contact.RETURNING: f"{node.name} is back; what is left of old runs is cleaned up before anything new starts",
        Contact.LOST: f"{node.name} lost; its jobs continue elsewhere, and it takes part again when it answers",
    }[node.contact]


def _until(node: Node, now_s: float) -> str:
    if runs_pods(node):  # pods reach the daemon without their node
        return f" until its pods have not reached it for {node.lease_s:.0f} s"
    return f" for {_left_s(node, now_s):.0f} s more at most"


def _left_s(node: Node, now_s: float) -> float:
    """The time until its leases expire, counted from its last answer."""
    return max(0.0, node.contact_s - AWAY_AFTER_S + node.lease_s - now_s)


def _changed(node: Node, contact: Contact, boot_id: str, why: str, now_s: float) -> Event:
    return ev.NodeContactChanged(node=node.name, contact=contact, at_s=now_s, boot_id=boot_id, why=why)
