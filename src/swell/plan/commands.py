"""What people ask for, turned into events. Pure: each function reads the state and returns the facts to append.

Raises NotFound or Conflict, with what to do instead, when the command does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swell.core import events as ev
from swell.core.errors import Conflict, NotFound
from swell.core.events import Event, StopWhy
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.resources import NodeCondition
from swell.core.state import JobRecord, JobState, State


def job_in(state: State, job: JobId) -> JobRecord:
    record = state.jobs.get(job)
    if record is None:
        raise NotFound(f"there is no job {job}; `swell ls --all` lists the jobs there are")
    return record


def submit(state: State, specs: Sequence[JobSpec], *, key: str, batch: str, now_s: float) -> list[Event]:
    """One event a job, with ids that follow the last one."""
    first = state.last_job + 1
    return [
        ev.JobSubmitted(
            job=first + i, spec=spec, at_s=now_s, key=key if i == 0 else "", batch=batch or _batch(first, len(specs))
        )
        for i, spec in enumerate(specs)
    ]


def _batch(first: JobId, count: int) -> str:
    return f"b{first}" if count > 1 else ""


def cancel(state: State, job: JobId, *, by: str, reason: str, now_s: float) -> list[Event]:
    """Stop now. Nothing to do if it is being cancelled already."""
    record = job_in(state, job)
    if record.ended:
        raise Conflict(f"job {job} has ended already ({record.state}); there is nothing to cancel")
    if record.run is None or not record.holding:
        return [ev.JobCancelled(job=job, at_s=now_s, by=by, reason=reason)]
    if record.run.stop is not None and record.run.stop.why is StopWhy.CANCELLED:
        return []
    return [ev.RunStopRequested(run=record.run.id, why=StopWhy.CANCELLED, at_s=now_s, by=by, reason=reason)]


def pause(state: State, job: JobId, *, by: str, now_s: float) -> list[Event]:
    record = job_in(state, job)
    if record.ended:
        raise Conflict(f"job {job} has ended ({record.state}) and cannot be paused")
    if record.paused:
        return []
    if record.holding and not record.may_be_stopped:
        raise Conflict(
            f"job {job} cannot be paused without losing its work: it neither uses the swell library nor says where "
            "its checkpoints are. Cancel it, or set `preemptible: restart` on jobs that may start again from nothing"
        )
    paused: list[Event] = [ev.JobPaused(job=job, at_s=now_s, by=by)]
    if record.holding and record.run is not None and record.state is not JobState.STOPPING:
        paused.append(ev.RunStopRequested(run=record.run.id, why=StopWhy.PAUSED, at_s=now_s, by=by))
    return paused


def resume(state: State, job: JobId, *, by: str, now_s: float) -> list[Event]:
    record = job_in(state, job)
    if record.ended:
        raise Conflict(f"job {job} has ended ({record.state}); submit it again to run it again")
    return [ev.JobResumed(job=job, at_s=now_s, by=by)] if record.paused else []


def set_priority(state: State, job: JobId, priority: int, *, by: str, now_s: float) -> list[Event]:
    record = job_in(state, job)
    if record.ended:
        raise Conflict(f"job {job} has ended ({record.state}); its priority does not matter any more")
    return [ev.PriorityChanged(job=job, priority=priority, at_s=now_s, by=by)]


def remove(state: State, job: JobId, *, by: str, now_s: float, dirs: Sequence[str] = ()) -> list[Event]:
    """Delete: an ended job leaves the record; one that has not ended is stopped now. `dirs`: where nodes keep a
    directory a job, named by its id. One whose files another job may still want is not removed."""
    record = None if job <= state.last_job and job not in state.jobs else job_in(state, job)
    if record is not None and not record.ended:
        return cancel(state, job, by=by, reason="deleted", now_s=now_s)
    own = [re.compile(rf"{re.escape(path)}/{job}(?![0-9])") for path in dirs]
    for other in state.jobs.values():
        if other.id != job and (use := _use_of(job, own, other)):
            raise Conflict(f"job {job} cannot be removed yet: {use}")
    return [ev.JobRemoved(job=job, at_s=now_s, by=by)]


def _use_of(job: JobId, own: Sequence[re.Pattern[str]], other: JobRecord) -> str:
    """What another job wants of this one's files; empty: nothing."""
    spec, wanted = (
        other.spec,
        "" if other.ended else f"wait until it has ended, or cancel it (`swell cancel {other.id}`)",
    )
    if wanted and job in spec.depends_on:
        return f"job {other.id} depends on it; {wanted}"
    kept = (spec.workdir, spec.checkpoint_dir)
    servers = spec.roles.server_command if spec.roles else ()
    named = (*spec.command, *servers, *spec.env.values(), *(mount.source for mount in spec.mounts))
    for text in (*kept, *(named if wanted else ())):
        if any(path.search(text) for path in own):
            what_now = wanted or f"remove that one first (`swell rm {other.id}`), or copy what you want of it"
            return f"job {other.id} names its files; {what_now}"
    return ""


def set_node_condition(
    state: State, name: str, condition: NodeCondition, *, why: str, by: str, now_s: float
) -> list[Event]:
    if name not in state.nodes:
        raise NotFound(f"there is no node {name!r}; `swell nodes` lists the nodes there are")
    return [ev.NodeConditionChanged(node=name, condition=condition, why=why, by=by, at_s=now_s)]


def remove_node(state: State, name: str, *, by: str, now_s: float) -> list[Event]:
    if name not in state.nodes:
        raise NotFound(f"there is no node {name!r}; `swell nodes` lists the nodes there are")
    users = [r.id for r in map(state.jobs.__getitem__, state.active) if r.allocation and name in r.allocation.nodes]
    if users:
        jobs = ", ".join(map(str, users))
        raise Conflict(f"node {name} still runs job {jobs}; `swell node drain {name}` first, then remove it")
    return [ev.NodeRemoved(node=name, at_s=now_s, by=by)]
