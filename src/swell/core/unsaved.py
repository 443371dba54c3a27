"""Work of a run that is in no checkpoint: since when, until when, and so the cost of stopping the run now.

`plan.snapshotter` puts it into the snapshot, where `JobView.stop_cost_s` charges every decision that stops a run;
`plan.deadlines` derives from it how long a stop waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.core.events import Saves
from swell.core.state import JobRecord, JobState, Run, unsaved_since_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    since_s: float  # work since then is in no checkpoint
    every_s: float = 0.0  # expected time between two checkpoints; 0: unknown

    def age_s(self, now_s: float) -> float:
        """The work that is lost if the run is killed now."""
        return max(0.0, now_s - self.since_s)

    def boundary_in_s(self, now_s: float) -> float | None:
        """The expected time until the next checkpoint; if that is overdue, a whole interval more. None: unknown."""
        if self.every_s <= 0.0:
            return None
        left_s = self.since_s + self.every_s - now_s
        return left_s if left_s > 0.0 else self.every_s

    def stop_cost_s(self, now_s: float) -> float:
        """Cost of a stop beyond the restart: the wait for the next checkpoint, or, if its time is unknown, the work
        since the last one."""
        wait_s = self.boundary_in_s(now_s)
        return self.age_s(now_s) if wait_s is None else wait_s


def unsaved_of(run: Run, default_s: float) -> Unsaved:
    """The unsaved work of a run; since `default_s` if it has not begun."""
    return Unsaved(since_s=unsaved_since_s(run, default_s), every_s=run.boundary_every_s)


def has_boundaries(record: JobRecord, run: Run) -> bool:
    """Whether waiting for a checkpoint makes a stop cheaper: only if the run saves, through the library or in a
    directory that its user specified."""
    return run.began_s is not None or (run.started_s is not None and bool(record.spec.checkpoint_dir))


def charged(record: JobRecord, restart_cost_s: float) -> Unsaved | None:
    """The unsaved work that decisions about a job are charged with. None: its run has done no work yet, cannot be
    stopped, saves at any step, or saves so frequently that only the restart counts."""
    run = record.run
    if run is None or record.state not in (JobState.RUNNING, JobState.STOPPING):
        return None
    if record.spec.scales_in_place or not record.may_be_stopped:
        return None
    if run.saves is Saves.ANYWHERE or run.started_s is None or (record.uses_library and run.began_s is None):
        return None
    return None if 0.0 < run.boundary_every_s < restart_cost_s else unsaved_of(run, run.started_s)
