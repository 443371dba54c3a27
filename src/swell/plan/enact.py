"""Turns a plan into the events that record it. Pure; `plan.one_pass` calls it for the daemon and the simulator."""

from __future__ import annotations

from swell.core import events as ev
from swell.core.decision import Plan
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.resources import Allocation
from swell.core.state import JobState, State, may_be_withdrawn


def events_of(plan: Plan, state: State, now_s: float) -> list[Event]:
    """Withdrawals, stops, resizes, starts. Parts that no longer apply (the job ended, was paused or cancelled while the
    plan was made, or its node went away) are left out; the next pass decides about them."""
    stops = [*_withdrawals(plan, state, now_s), *_stops(plan, state, now_s)]
    events: list[Event] = [*stops, *_resizes(plan, state, now_s), *_starts(plan, state, now_s)]
    if plan.memory is not state.policy_memory and plan.memory != state.policy_memory:
        events.append(ev.PolicyRemembered(memory=plan.memory, at_s=now_s))
    return events


def _withdrawals(plan: Plan, state: State, now_s: float) -> list[Event]:
    found: list[Event] = []
    for withdrawal in plan.withdrawals:
        record = state.jobs.get(withdrawal.job)
        if record and record.run and may_be_withdrawn(record):
            found.append(ev.RunStopWithdrawn(run=record.run.id, at_s=now_s, reason=withdrawal.reason))
    return found


def _stops(plan: Plan, state: State, now_s: float) -> list[Event]:
    found: list[Event] = []
    for stop in plan.stops:
        record = state.jobs.get(stop.job)
        if record and record.run and record.state in (JobState.STARTING, JobState.RUNNING):
            found.append(ev.RunStopRequested(run=record.run.id, why=stop.why, at_s=now_s, reason=stop.reason))
    return found


def _resizes(plan: Plan, state: State, now_s: float) -> list[Event]:
    found: list[Event] = []
    for resize in plan.resizes:
        record = state.jobs.get(resize.job)
        if record and record.run and record.state is JobState.RUNNING:
            found.append(
                ev.RunResized(run=record.run.id, allocation=resize.allocation, at_s=now_s, reason=resize.reason)
            )
    return found


def _starts(plan: Plan, state: State, now_s: float) -> list[Event]:
    found: list[Event] = []
    for start in plan.starts:
        record = state.jobs.get(start.job)
        if record and record.state is JobState.QUEUED and not record.paused and _ready(start.allocation, state):
            run = RunId(record.id, record.attempts + 1)
            found.append(ev.RunPlanned(run=run, allocation=start.allocation, at_s=now_s, reason=start.reason))
    return found


def _ready(allocation: Allocation, state: State) -> bool:
    """Whether the nodes of a start still take new runs."""
    nodes = state.nodes
    return all((node := nodes.get(part.node)) is not None and node.schedulable for part in allocation.parts)
