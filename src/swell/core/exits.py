"""What the end of a run means: the one place that decides it. Pure.

The facts come from the shim's exit record. `reason_of_exit` and `reason_not_started` give them a reason (called by the
executors' verdict), `reason_when_stopping` corrects it by what the daemon had asked of the run (called by the daemon's
watch), and `state_after` decides what becomes of the job (called by the lifecycle).
"""

from __future__ import annotations

import errno
import math

from swell.core.events import EXIT_STOPPED, ExitReason, RunEnded, StopWhy
from swell.core.job import RestartPolicy
from swell.core.state import JobRecord, JobState

CLOCK_S = 1.0
"""Times of a machine are converted to the daemon's clock to well within this."""
MAX_LOST_RUNS = 10
"""A job whose shims were lost this many times fails: it probably takes its machines down."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN})
FAILURES = frozenset({ExitReason.USER_ERROR, ExitReason.OUT_OF_MEMORY, ExitReason.KILLED, ExitReason.START_FAILED})
"""Ends that count against a job's retries."""
KILLS = frozenset({ExitReason.KILLED, ExitReason.OUT_OF_MEMORY})
"""Ends that the job did not cause: it is retried from its last checkpoint."""
MAX_KILLS = 5
"""After this many kills a job with checkpoints counts as the cause itself: from then on they use up `retries`."""
SHELL_KILLED = 128 + 9
"""What a shell, as which most commands are started, leaves with when its child was killed (SIGKILL)."""
_FAULTS = frozenset({ExitReason.USER_ERROR, ExitReason.KILLED})


def reason_of_exit(
    *, code: int | None, by_signal: bool, out_of_memory: bool, asked: bool, lease_over: bool = False
) -> ExitReason:
    """A script that answers SIGTERM with exit code 0 has stopped, not finished: its work must not be given up. One that
    its machine ended because it lost the daemon was lost with the machine, unless it left at a checkpoint."""
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
    """What an error of the system (errno) at the start of a run means: a node without room is no fault of the job."""
    return ExitReason.NODE_FULL if number in _NO_ROOM else ExitReason.START_FAILED


def reason_when_stopping(
    job: JobRecord, reason: ExitReason, code: int | None, *, signalled: bool, ended_s: float = math.inf
) -> ExitReason:
    """A run that was asked to stop and ended, did as it was asked, whatever it left with; one that was not, did not.
    One whose machine was silent may have ended (`ended_s`) before anybody wanted it to stop."""
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
    """The library leaves with a code of its own when it stops, so its exit code 0 is a finish."""
    cancelled = job.run is not None and job.run.stop is not None and job.run.stop.why is StopWhy.CANCELLED
    return job.uses_library and not cancelled


def left_at_checkpoint(end: RunEnded) -> bool:
    """Did it leave right after a checkpoint, as it was asked to? Then no work is lost."""
    return end.reason is ExitReason.STOPPED and end.exit_code == EXIT_STOPPED


def is_spared(job: JobRecord, reason: ExitReason) -> bool:
    """Was it killed, and can it go on from a checkpoint? Then it is tried again, and no failure is counted."""
    tried_again = job.spec.restart is RestartPolicy.ON_FAILURE and job.kills < MAX_KILLS
    return reason in KILLS and job.resumable and tried_again


def state_after(job: JobRecord, reason: ExitReason) -> JobState:
    """What becomes of the job when its run ended for this reason. QUEUED: it runs again."""
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
    if reason is ExitReason.NODE_LOST:  # no fault of the job, however often
        return JobState.QUEUED if retried else JobState.LOST
    if reason is ExitReason.SHIM_LOST:
        return JobState.QUEUED if retried and job.lost_runs < MAX_LOST_RUNS else JobState.LOST
    if is_spared(job, reason):
        return JobState.QUEUED
    return JobState.QUEUED if retried and job.failures < job.spec.retries else JobState.FAILED
