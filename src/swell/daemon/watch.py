"""From what executors see to events: started, ended and why, nodes that came or changed."""

from __future__ import annotations

from dataclasses import replace

from swell.core import events as ev
from swell.core.events import Event, StopWhy
from swell.core.exits import reason_when_stopping
from swell.core.resources import Node
from swell.core.state import JobRecord, State
from swell.ports import FilesFound, NodeSeen, Observation, RunGone, RunUp


def events_seen(state: State, seen: Observation, *, signalled: bool) -> list[Event]:
    """The events that one observation brings. Nothing for what is known already. `signalled`: the run it is about was,
    or may have been, sent a signal by this daemon."""
    if isinstance(seen, NodeSeen):
        return _node(state, seen)
    if isinstance(seen, FilesFound):
        return []
    record = state.jobs.get(seen.run.job)
    if record is None or record.run is None or record.run.id != seen.run or not record.holding:
        return []
    if isinstance(seen, RunUp):
        return [] if record.run.started_s is not None else [ev.RunStarted(run=seen.run, at_s=seen.at_s)]
    return [
        ev.RunEnded(
            run=seen.run,
            reason=reason_when_stopping(record, seen.reason, seen.exit_code, signalled=signalled),
            at_s=seen.at_s,
            exit_code=seen.exit_code,
            message=_message(record, seen),
        )
    ]


def _message(record: JobRecord, gone: RunGone) -> str:
    stop = record.run.stop if record.run else None
    if stop is None:
        return gone.message
    if stop.why is StopWhy.TIMED_OUT:
        return stop.reason
    if stop.why is StopWhy.CANCELLED:
        return stop.reason or (f"cancelled by {stop.by}" if stop.by else "cancelled")
    return gone.message


def _node(state: State, seen: NodeSeen) -> list[Event]:
    known = state.nodes.get(seen.node.name)
    if known is not None and _same(known, seen.node):
        return []
    return [ev.NodeObserved(node=seen.node, at_s=seen.at_s)]


def _same(known: Node, seen: Node) -> bool:
    return known == replace(seen, condition=known.condition, why=known.why)
