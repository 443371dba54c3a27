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
from swell.core.state import JobRecord, JobState, State, was_given


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
    record = None if was_given(state, job) and job not in state.jobs else job_in(state, job)
    if record is not None and not record.ended:
        return cancel(state, job, by=by, reason="deleted", now_s=now_s)
    _check_not_wanted(state, job, dirs)
    return [ev.JobRemoved(job=job, at_s=now_s, by=by)]


def _check_not_wanted(state: State, job: JobId, dirs: Sequence[str]) -> None:
    """Raises Conflict if another job may want its files: it depends on it, names them, or keeps its own among them."""
    own = [f"{path}/{job}" for path in dirs]
    for other in state.active:
        spec = state.jobs[other].spec
        use = "depends on it" if job in spec.depends_on else "names its files" if _names(_all_paths(spec), own) else ""
        if use:
            wait = f"wait until that has ended, or cancel it (`swell cancel {other}`)"
            raise Conflict(f"job {job} cannot be removed yet: job {other} {use}; {wait}")
    for other in state.ended:
        spec = state.jobs[other].spec
        if other != job and (_names(spec.workdir, own) or _names(spec.checkpoint_dir, own)):
            first = f"remove that first (`swell rm {other}`)"
            raise Conflict(f"job {job} cannot be removed yet: job {other} has kept files among its own; {first}")


def _all_paths(spec: JobSpec) -> str:
    """Whatever may be one."""
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
    """`work/1` is not named by `work/12`."""
    return any(path in text and re.search(rf"{re.escape(path)}(?![0-9])", text) for path in own)


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
