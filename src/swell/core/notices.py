"""Decides which events cause a notice to people, and its text. Pure. `daemon.hooks` calls it for each event, with the
state after that event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from swell.core import events as ev
from swell.core.events import Event, StopWhy
from swell.core.ids import JobId
from swell.core.resources import Contact, NodeCondition
from swell.core.state import JobRecord, JobState, State


class NoticeKind(StrEnum):
    ENDED = "ended"  # a job completed
    FAILED = "failed"  # a job failed, or was lost
    PREEMPTED = "preempted"  # a job gives way to another
    STARVING = "starving"  # a job has waited for longer than `starvation_s`
    IDLE = "idle"  # a job holds GPUs that it does not use (`idle_gpus`)
    MACHINE = "machine"  # a machine is away, lost, back or set aside


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Where notices go: a webhook, or e-mail. What cannot be delivered is tried again for a day."""

    url: str  # https://…, http://…, or smtp://host:25/?from=a@b&to=c@d
    kinds: tuple[str, ...] = tuple(NoticeKind)  # of notices
    style: str = "json"  # json, or slack: {"text": …}
    secret_file: str = ""  # its content signs what is sent; empty: nothing is signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """`text` is one line for a person."""

    kind: NoticeKind
    text: str
    at_s: float
    job: JobId | None = None
    name: str = ""
    user: str = ""
    node: str = ""


def notice_of(state: State, event: Event) -> Notice | None:
    """The notice of an event; None: it causes none."""
    job = ev.job_of(event)
    record = state.jobs.get(job) if job is not None else None
    if isinstance(event, ev.RunEnded) and record is not None:
        return _end(record, event)
    if isinstance(event, ev.RunStopRequested) and event.why is StopWhy.PREEMPTED and record is not None:
        why = f": {event.reason}" if event.reason else ""
        return _about(record, NoticeKind.PREEMPTED, f"gives way{why}; it goes on from its checkpoint", event.at_s)
    if isinstance(event, ev.NodeContactChanged):
        return _machine(event.node, event.contact is not Contact.RETURNING, event.why, event.at_s)
    if isinstance(event, ev.NodeConditionChanged):
        set_aside = event.condition is NodeCondition.QUARANTINED
        return _machine(event.node, set_aside, f"{event.node} is set aside: {event.why}", event.at_s)
    return None


def starving(record: JobRecord, waited_s: float, now_s: float) -> Notice:
    hours = waited_s / 3600
    return _about(record, NoticeKind.STARVING, f"has waited for {hours:.1f} hours; `swell explain` says why", now_s)


def idle(record: JobRecord, words: str, now_s: float) -> Notice:
    what = f"holds GPUs that it does not use: {words}; see `swell show {record.id}` and its log"
    return _about(record, NoticeKind.IDLE, what, now_s)


def _end(record: JobRecord, event: ev.RunEnded) -> Notice | None:
    if record.run is None or record.run.id != event.run:
        return None
    if record.state is JobState.COMPLETED:
        return _about(record, NoticeKind.ENDED, "completed", event.at_s)
    if record.state in (JobState.FAILED, JobState.LOST):
        why = f": {record.message}" if record.message else ""
        return _about(record, NoticeKind.FAILED, f"{record.state}{why}", event.at_s)
    return None


def _about(record: JobRecord, kind: NoticeKind, what: str, at_s: float) -> Notice:
    spec = record.spec
    who = f", {spec.user}" if spec.user else ""
    text = f"job {record.id} ({spec.name}{who}) {what}"
    return Notice(kind=kind, text=text, at_s=at_s, job=record.id, name=spec.name, user=spec.user)


def _machine(node: str, worth: bool, why: str, at_s: float) -> Notice | None:
    return Notice(kind=NoticeKind.MACHINE, text=why, at_s=at_s, node=node) if worth and why else None
