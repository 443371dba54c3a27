"""Decides what the end of a run means. Pure.

The facts come from the shim's exit record. `reason_of_exit` and `reason_not_started` derive the reason (called by the
executors' verdict), `reason_when_stopping` corrects it if the daemon had requested a stop (called by `daemon.watch`),
and `state_after` decides the next state of the job (called by `lifecycle`).
"""

from __future__ import annotations

import errno
import math

from swell.core.events import EXIT_STOPPED, ExitReason, RunEnded, StopWhy
from swell.core.job import RestartPolicy
from swell.core.state import JobRecord, JobState

CLOCK_S = 1.0
"""The error of converting a machine's times to the daemon's clock is well below this."""
MAX_LOST_RUNS = 10
"""A job whose shims were lost this many times fails: it probably takes its machines down."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN})
FAILURES = frozenset({ExitReason.USER_ERROR, ExitReason.OUT_OF_MEMORY, ExitReason.KILLED, ExitReason.START_FAILED})
"""Ends that count against a job's retries."""
KILLS = frozenset({ExitReason.KILLED, ExitReason.OUT_OF_MEMORY})
"""Ends that the job did not cause: it is retried from its last checkpoint."""
MAX_KILLS = 5
"""After this many kills a job with checkpoints counts as their cause: further ones use up `retries`."""
SHELL_KILLED = 128 + 9
"""Exit code of a shell whose child was killed (SIGKILL); most commands are started by a shell."""
_FAULTS = frozenset({ExitReason.USER_ERROR, ExitReason.KILLED})


def reason_of_exit(
    *, code: int | None, by_signal: bool, out_of_memory: bool, asked: bool, lease_over: bool = False
) -> ExitReason:
    """The reason for an exit. `asked`: a stop was requested, so exit code 0 means stopped, not finished. `lease_over`:
    the machine ended the run because it lost the daemon; that counts as a lost machine, unless the run left at a
    checkpoint."""
    if lease_over and code != EXIT_STOPPED:
        return ExitReason.NODE_LOST
    if asked or code == EXIT_STOPPED:
        return ExitReason.STOPPED
    if code == 0:
        return ExitReason.FINISHED
    if out_of_memory:
        return ExitReason.OUT_OF_MEMORY
    return ExitReason.KILLED if by_signal or code == SHELL_KILLED else ExitReason.USER_ERROR


def reason_not_started(number: int | None) -> ExitReason:
    """The reason for an errno at the start of a run: a node without room is not a fault of the job."""
    return ExitReason.NODE_FULL if number in _NO_ROOM else ExitReason.START_FAILED


def reason_when_stopping(
    job: JobRecord, reason: ExitReason, code: int | None, *, signalled: bool, ended_s: float = math.inf
) -> ExitReason:
    """Corrects the reason of a run that ended after a stop was requested: an error or a kill counts as stopped. A run
    whose machine was silent may have ended (`ended_s`) before the request; then the reason stays."""
    if job.state is not JobState.STOPPING or job.run is None or job.run.stop is None:
        return reason
    if ended_s < job.run.stop.at_s - CLOCK_S:
        return reason
    if reason is ExitReason.STOPPED and code == 0 and _stops_by_its_own_code(job):
        return ExitReason.FINISHED
    if reason in _FAULTS:
        return ExitReason.STOPPED
    if reason is ExitReason.FINISHED and signalled and not _stops_by_its_own_code(job):
        # Without the library, exit code 0 after SIGTERM looks like a finish: it is run again.
        return ExitReason.STOPPED
    return reason


def _stops_by_its_own_code(job: JobRecord) -> bool:
    """Whether its exit code 0 means finished: the library exits with `EXIT_STOPPED` when it stops."""
    cancelled = job.run is not None and job.run.stop is not None and job.run.stop.why is StopWhy.CANCELLED
    return job.uses_library and not cancelled


def left_at_checkpoint(end: RunEnded) -> bool:
    """Whether it left right after a checkpoint, as requested, so that no work is lost."""
    return end.reason is ExitReason.STOPPED and end.exit_code == EXIT_STOPPED


def is_spared(job: JobRecord, reason: ExitReason) -> bool:
    """Whether a killed job is retried from its checkpoint without counting a failure."""
    tried_again = job.spec.restart is RestartPolicy.ON_FAILURE and job.kills < MAX_KILLS
    return reason in KILLS and job.resumable and tried_again


def state_after(job: JobRecord, reason: ExitReason) -> JobState:
    """The state of the job after its run ended for this reason. QUEUED: it runs again."""
    if reason is ExitReason.FINISHED or job.result_of:
        return JobState.COMPLETED
    stop = job.run.stop if job.run else None
    if stop is not None and stop.why is StopWhy.CANCELLED:
        return JobState.CANCELLED
    if stop is not None and stop.why is StopWhy.TIMED_OUT:
        return JobState.FAILED
    if reason in (ExitReason.STOPPED, ExitReason.NODE_FULL):
        return JobState.QUEUED
    retried = job.spec.restart is RestartPolicy.ON_FAILURE
    if reason is ExitReason.NODE_LOST:  # not a fault of the job, so retries are not limited
        return JobState.QUEUED if retried else JobState.LOST
    if reason is ExitReason.SHIM_LOST:
        return JobState.QUEUED if retried and job.lost_runs < MAX_LOST_RUNS else JobState.LOST
    if is_spared(job, reason):
        return JobState.QUEUED
    return JobState.QUEUED if retried and job.failures < job.spec.retries else JobState.FAILED
