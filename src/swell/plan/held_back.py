"""Why pending jobs may not start now even if GPUs are free. Pure; the snapshotter and `plan.explain` call it."""

from __future__ import annotations

from swell.core.decision import Reason, ReasonCode
from swell.core.dependencies import unmet
from swell.core.events import ExitReason
from swell.core.exits import KILLS
from swell.core.resources import Contact
from swell.core.state import JobRecord, State
from swell.core.staying import stay_of

_Needs = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class HeldBack:
    """Made anew for each state. Caches unmet dependencies: thousands of jobs (an array) may wait for the same ones."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state, self._now_s = state, now_s
        self._unmet: dict[_Needs, Reason | None] = {}

    def reason(self, record: JobRecord) -> Reason | None:
        """Why the job may not start now; None: it may."""
        if record.paused:
            return Reason(code=ReasonCode.PAUSED)
        if record.not_before_s > self._now_s:
            return _backoff(record)
        state = self._state
        if lost_a_machine(record) and (nodes := may_live_on(record, state)):
            return Reason(code=ReasonCode.CLEANING, detail={"nodes": ", ".join(nodes)})
        stay = stay_of(record, state.nodes)
        if stay is not None and not any(state.nodes[name].schedulable for name in stay.nodes):
            return Reason(code=ReasonCode.FILES, detail={"nodes": " or ".join(stay.nodes), "why": stay.why})
        return self._waits_for_others(record)

    def _waits_for_others(self, record: JobRecord) -> Reason | None:
        spec = record.spec
        needs = (spec.depends_on, spec.after_any, spec.after_failure)
        if needs not in self._unmet:
            jobs = ", ".join(map(str, unmet(spec, self._state)))
            only = {"only": "failure"} if not (spec.depends_on or spec.after_any) else {}
            self._unmet[needs] = Reason(code=ReasonCode.DEPENDS, detail={"jobs": jobs, **only}) if jobs else None
        return self._unmet[needs]


def lost_a_machine(record: JobRecord) -> bool:
    return record.run is not None and record.run.exit_reason is ExitReason.NODE_LOST


def may_live_on(record: JobRecord, state: State) -> list[str]:
    """Machines on which workers of a job's last run may still be alive, though the run ended with another machine:
    those that have not answered since, and those that are being cleaned."""
    nodes = [state.nodes[name] for name in (record.run.allocation.nodes if record.run else ()) if name in state.nodes]
    return [node.name for node in nodes if node.contact in (Contact.AWAY, Contact.RETURNING)]


def _backoff(record: JobRecord) -> Reason:
    tells = record.run is not None and record.run.exit_reason in (ExitReason.NODE_FULL, *KILLS)
    why = {"why": record.message} if tells and record.message else {}
    return Reason(code=ReasonCode.BACKOFF, detail={"until_s": record.not_before_s, **why})
