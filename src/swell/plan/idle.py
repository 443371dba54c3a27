"""Which jobs hold idle GPUs, and the remedies. Pure.

`daemon.idle_gpus` calls it with measurements; lists, notices and the dashboard show the result. It changes the size of
a job only through a command (`remedies`), which becomes an event like a user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from swell.core.idle import IdleRules
from swell.core.ids import JobId
from swell.core.resources import GpuKey
from swell.core.state import JobRecord, JobState, State
from swell.plan.explain import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """`gpus` of the `held` GPUs of the job have all been idle since `since_s`."""

    job: JobId
    gpus: int
    held: int
    since_s: float

    def words(self, now_s: float) -> str:
        some = "its GPU has" if self.held == 1 else f"{self.gpus} of its {self.held} GPUs have"
        return f"{some} been idle for {duration(now_s - self.since_s)}"


class Remedy(StrEnum):
    SHRINK = "shrink"
    SUSPEND = "suspend"


def idle_jobs(state: State, quiet: Mapping[GpuKey, float], after_s: float, now_s: float) -> dict[JobId, Idle]:
    """Running jobs with GPUs that were idle for at least this long. `quiet`: since when each recently measured GPU has
    been idle."""
    found = (_idle(state.jobs[job], quiet, after_s, now_s) for job in state.active) if after_s and quiet else ()
    return {idle.job: idle for idle in found if idle is not None}


def _idle(record: JobRecord, quiet: Mapping[GpuKey, float], after_s: float, now_s: float) -> Idle | None:
    run = record.run
    if record.state is not JobState.RUNNING or run is None or run.started_s is None or record.spec.may_idle:
        return None
    held = run.allocation.gpu_keys
    since = [max(quiet[gpu], run.started_s) for gpu in held if gpu in quiet]
    long = [since_s for since_s in since if now_s - since_s >= after_s]
    return Idle(job=record.id, gpus=len(long), held=len(held), since_s=max(long)) if long else None


def remedies(state: State, quiet: Mapping[GpuKey, float], rules: IdleRules, now_s: float) -> dict[JobId, Remedy]:
    """The remedies that are due, for jobs that can be stopped or resized. Suspend takes precedence over shrink."""
    asleep = idle_jobs(state, quiet, rules.suspend_after_s, now_s)
    found = {
        job: Remedy.SUSPEND
        for job, idle in asleep.items()
        if idle.gpus == idle.held and state.jobs[job].may_be_stopped and not state.jobs[job].paused
    }
    for job, idle in idle_jobs(state, quiet, rules.shrink_after_s, now_s).items():
        record = state.jobs[job]
        if record.may_be_resized and smaller(record, idle) < record.spec.gpus.max:
            found.setdefault(job, Remedy.SHRINK)
    return found


def smaller(record: JobRecord, idle: Idle) -> int:
    """The maximum size to shrink the job to: the smallest of its sizes that covers the GPUs it uses."""
    used = idle.held - idle.gpus
    return next((size for size in record.spec.gpus.sizes() if size >= max(1, used)), record.spec.gpus.max)
