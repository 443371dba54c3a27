"""From what executors see to events: started, ended and why, nodes that came or changed."""

from __future__ import annotations

from dataclasses import replace

from swell.core import events as ev
from swell.core.events import Event, ExitReason, StopWhy
from swell.core.resources import Node
from swell.core.state import JobRecord, JobState, State
from swell.plan.deadlines import Force
from swell.ports import NodeSeen, Observation, RunGone, RunUp

_FAULTS = frozenset({ExitReason.USER_ERROR, ExitReason.KILLED})


def events_seen(state: State, seen: Observation, pushed: Force) -> list[Event]:
    """The events that one observation brings. Nothing for what is known already."""
    if isinstance(seen, NodeSeen):
        return _node(state, seen)
    record = state.jobs.get(seen.run.job)
    if record is None or record.run is None or record.run.id != seen.run or not record.holding:
        return []
    if isinstance(seen, RunUp):
        return [] if record.run.started_s is not None else [ev.RunStarted(run=seen.run, at_s=seen.at_s)]
    return [
        ev.RunEnded(
            run=seen.run,
            reason=exit_reason(record, seen, pushed),
            at_s=seen.at_s,
            exit_code=seen.exit_code,
            message=_message(record, seen),
        )
    ]


def exit_reason(record: JobRecord, gone: RunGone, pushed: Force) -> ExitReason:
    """A run that was asked to stop and ended, did as it was asked, however it put it; one that was not, did not."""
    if record.state is not JobState.STOPPING or record.run is None or record.run.stop is None:
        return gone.reason
    if gone.reason is ExitReason.STOPPED and gone.exit_code == 0 and _knows_how_to_stop(record):
        return ExitReason.FINISHED  # the library leaves with a code of its own when it stops
    if gone.reason in _FAULTS:
        return ExitReason.STOPPED
    if gone.reason is ExitReason.FINISHED and pushed is not Force.ASK and not _knows_how_to_stop(record):
        # Without the library, exit code 0 after SIGTERM cannot be told from a finish: it is run again.
        return ExitReason.STOPPED
    return gone.reason


def _knows_how_to_stop(record: JobRecord) -> bool:
    cancelled = record.run is not None and record.run.stop is not None and record.run.stop.why is StopWhy.CANCELLED
    return record.uses_library and not cancelled


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
