"""Commands of people: each function reads the state and returns the events to append. The engine calls them. Pure.

Raises NotFound or Conflict, with what to do instead, when the command does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swell.core import contact
from swell.core import events as ev
from swell.core.errors import Conflict, NotFound
from swell.core.events import Event, ExitReason, StopWhy
from swell.core.ids import JobId, RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import LEASE_S, Contact, Node, NodeCondition
from swell.core.state import JobRecord, JobState, State, was_given


def job_in(state: State, job: JobId) -> JobRecord:
    record = state.jobs.get(job)
    if record is None:
        raise NotFound(f"there is no job {job}; `swell ls --all` lists the jobs there are")
    return record


def submit(state: State, specs: Sequence[JobSpec], *, key: str, batch: str, now_s: float) -> list[Event]:
    """One event per job, with consecutive ids."""
    first = state.last_job + 1
    return [
        ev.JobSubmitted(
            job=first + i, spec=spec, at_s=now_s, key=key if i == 0 else "", batch=batch or _batch(first, len(specs))
        )
        for i, spec in enumerate(specs)
    ]


def _batch(first: JobId, count: int) -> str:
    return f"b{first}" if count > 1 else ""


def cancel(state: State, job: JobId, *, by: str, reason: str, now_s: float, at_once: bool = False) -> list[Event]:
    """Stops the job; `at_once`: without its grace period. No event if the same cancellation is under way."""
    record = job_in(state, job)
    if record.ended:
        raise Conflict(f"job {job} has ended already ({record.state}); there is nothing to cancel")
    if record.run is None or not record.holding:
        return [ev.JobCancelled(job=job, at_s=now_s, by=by, reason=reason)]
    stop = record.run.stop
    if stop is not None and stop.why is StopWhy.CANCELLED and (stop.now or not at_once):
        return []
    asked = ev.RunStopRequested(run=record.run.id, why=StopWhy.CANCELLED, at_s=now_s, by=by, reason=reason, now=at_once)
    return [asked]


def result_stands(state: State, run: RunId, *, now_s: float) -> list[Event]:
    """A run that was given up because its machine was lost has finished after all: its job completes. No event if that
    is recorded already or the job has ended."""
    record = state.jobs.get(run.job)
    if record is None or record.run is None or record.ended or record.result_of:
        return []
    if record.run.id == run and record.run.exit_reason is not ExitReason.NODE_LOST:
        return []
    found: list[Event] = [ev.ResultStands(run=run, at_s=now_s)]
    if record.holding:
        reason = f"attempt {run.attempt} had finished"
        found.append(ev.RunStopRequested(run=record.run.id, why=StopWhy.CANCELLED, at_s=now_s, reason=reason))
    return found


def pause(state: State, job: JobId, *, by: str, now_s: float, reason: str = "") -> list[Event]:
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
        paused.append(ev.RunStopRequested(run=record.run.id, why=StopWhy.PAUSED, at_s=now_s, by=by, reason=reason))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The fields of a job that a user wants to change; None: unchanged."""

    gpus: GpuRequest | None = None
    time_limit_s: float | None = None
    priority: int | None = None


def update(state: State, job: JobId, wanted: Update, *, by: str, now_s: float) -> list[Event]:
    record = job_in(state, job)
    if record.ended:
        raise Conflict(
            f"job {job} has ended ({record.state}): nothing of it can be changed; submit it again, or `swell requeue "
            f"{job}` lets it run again as it is"
        )
    events: list[Event] = []
    if wanted.gpus is not None:
        _check_new_size(record, wanted.gpus)
    if wanted.time_limit_s:
        _check_new_limit(record, wanted.time_limit_s, now_s)
    if wanted.gpus is not None or wanted.time_limit_s is not None:
        events.append(ev.JobUpdated(job=job, at_s=now_s, by=by, gpus=wanted.gpus, time_limit_s=wanted.time_limit_s))
    if wanted.priority is not None:
        events += set_priority(state, job, wanted.priority, by=by, now_s=now_s)
    return events


def _check_new_size(record: JobRecord, gpus: GpuRequest) -> None:
    """A run that cannot be resized keeps its size until it ends, so the new sizes must include it."""
    held = record.allocation
    if held is None:
        return
    if gpus.share != record.spec.gpus.share or (gpus.max == 0) != record.spec.cpu_only:
        raise Conflict(f"job {record.id} runs: with or without GPUs, shared or whole, can only change while it waits")
    if not gpus.share and gpus.max and held.gpus not in gpus.sizes() and not record.may_be_resized:
        raise Conflict(
            f"job {record.id} runs on {_gpus(held.gpus)} and cannot be resized: {record.spec.why_not_stopped}. Name a "
            f"range with {held.gpus} in it, or wait until it has ended"
        )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _check_new_limit(record: JobRecord, time_limit_s: float, now_s: float) -> None:
    started_s = record.run.started_s if record.run is not None and record.holding else None
    ran_s = record.ran_s + (max(0.0, now_s - started_s) if started_s is not None else 0.0)
    if time_limit_s <= ran_s:
        raise Conflict(
            f"job {record.id} has run for {ran_s:.0f} s already: a limit of {time_limit_s:.0f} s would end it now. "
            f"Name a longer one, or end it with `swell cancel {record.id}`"
        )


def requeue(state: State, job: JobId, *, by: str, now_s: float) -> list[Event]:
    """Queue a job again: an ended one runs again, a running one is preempted and resumes from its checkpoint."""
    if was_given(state, job) and job not in state.jobs:
        raise Conflict(f"job {job} ended too long ago to be queued again; submit it anew")
    record = job_in(state, job)
    if record.ended:
        return [ev.JobRequeued(job=job, at_s=now_s, by=by)]
    if not record.holding or record.run is None or record.state is JobState.STOPPING:
        return []
    if not record.may_be_stopped:
        raise Conflict(
            f"job {job} would lose its work: {record.spec.why_not_stopped}. To start it again from nothing: "
            f"`swell cancel {job}`, then `swell requeue {job}`"
        )
    reason = f"queued again by {by}" if by else "queued again"
    return [ev.RunStopRequested(run=record.run.id, why=StopWhy.PREEMPTED, at_s=now_s, by=by, reason=reason)]


def remove(state: State, job: JobId, *, by: str, now_s: float, dirs: Sequence[str] = ()) -> list[Event]:
    """Delete an ended job from the record, or cancel one that has not ended. Refused if another job may still need its
    files. `dirs`: where nodes keep a directory per job, named by its id."""
    record = None if was_given(state, job) and job not in state.jobs else job_in(state, job)
    if record is not None and not record.ended:
        return cancel(state, job, by=by, reason="deleted", now_s=now_s)
    _check_not_wanted(state, job, dirs)
    return [ev.JobRemoved(job=job, at_s=now_s, by=by)]


def _check_not_wanted(state: State, job: JobId, dirs: Sequence[str]) -> None:
    """Raises Conflict if another job may need its files: it depends on the job, or has paths among its files."""
    own = [f"{path}/{job}" for path in dirs]
    for other in state.active:
        spec = state.jobs[other].spec
        use = (
            "depends on it" if job in spec.dependencies else "names its files" if _names(_all_paths(spec), own) else ""
        )
        if use:
            wait = f"wait until that has ended, or cancel it (`swell cancel {other}`)"
            raise Conflict(f"job {job} cannot be removed yet: job {other} {use}; {wait}")
    for other in state.ended:
        spec = state.jobs[other].spec
        if other != job and (_names(spec.workdir, own) or _names(spec.checkpoint_dir, own)):
            first = f"remove that first (`swell rm {other}`)"
            raise Conflict(f"job {job} cannot be removed yet: job {other} has kept files among its own; {first}")


def _all_paths(spec: JobSpec) -> str:
    """All words of the job that may be a path."""
    servers = spec.roles.server_command if spec.roles else ()
    mounts = [mount.source for mount in spec.mounts]
    return "\n".join(
        (
            *spec.command,
            *servers,
            *spec.env.values(),
            *spec.shell_env.values(),
            *mounts,
            spec.workdir,
            spec.checkpoint_dir,
        )
    )


def _names(text: str, own: Sequence[str]) -> bool:
    """Whether the text contains one of these paths; `work/12` does not contain `work/1`."""
    return any(path in text and re.search(rf"{re.escape(path)}(?![0-9])", text) for path in own)


def add_node(node: Node, *, now_s: float) -> list[Event]:
    """Declare a machine, or change its declaration. One that is reached over SSH gets a lease, so that its runs have
    certainly ended some time after it fell silent."""
    if node.executor == "ssh":
        if node.ssh is None:
            raise Conflict(f"node {node.name} is to be reached over SSH, but nothing says how; set `ssh`")
        node = replace(node, lease_s=node.lease_s or LEASE_S)
    return [ev.NodeObserved(node=node, at_s=now_s)]


def set_node_condition(
    state: State, name: str, condition: NodeCondition, *, why: str, by: str, now_s: float
) -> list[Event]:
    if name not in state.nodes:
        raise NotFound(f"there is no node {name!r}; `swell nodes` lists the nodes there are")
    return [ev.NodeConditionChanged(node=name, condition=condition, why=why, by=by, at_s=now_s)]


def lose_node(state: State, name: str, *, by: str, now_s: float) -> list[Event]:
    """An operator reports a machine as lost, so nothing runs there. Refused while the machine answers."""
    node = state.nodes.get(name)
    if node is None:
        raise NotFound(f"there is no node {name!r}; `swell nodes` lists the nodes there are")
    if not node.lease_s:
        raise Conflict(f"{name} is the daemon's own machine, or slots on it: it is not off")
    if node.contact is Contact.HERE and node.boot_id:
        raise Conflict(f"{name} answers, so it is not off; `swell node drain {name}` moves its jobs away")
    if node.contact is Contact.LOST:
        return []
    return contact.lost(state, name, now_s, f"{by or 'somebody'} reported that it is switched off")


def remove_node(state: State, name: str, *, by: str, now_s: float) -> list[Event]:
    if name not in state.nodes:
        raise NotFound(f"there is no node {name!r}; `swell nodes` lists the nodes there are")
    users = [r.id for r in map(state.jobs.__getitem__, state.active) if r.allocation and name in r.allocation.nodes]
    if users:
        jobs = ", ".join(map(str, users))
        raise Conflict(f"node {name} still runs job {jobs}; `swell node drain {name}` first, then remove it")
    return [ev.NodeRemoved(node=name, at_s=now_s, by=by)]
