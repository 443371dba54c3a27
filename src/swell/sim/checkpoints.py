"""When runs of a simulated world write checkpoints, and therefore when and how they leave when they are asked to stop.

`duration_world` and `training_world` call it. With `every_s` 0 a run saves wherever it is asked to stop, as trainings
by steps do that use the in-job library. Else it saves every `every_s` seconds from its start on: a stop waits for the
next save, as in the daemon, and a preemption that cannot wait that long (`plan.deadlines`) kills the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swell.core.events import EXIT_STOPPED, CheckpointSeen, Event, ExitReason, RunEnded, Saves, StopAgreed
from swell.core.exits import left_at_checkpoint
from swell.core.state import JobRecord, Run
from swell.plan.deadlines import Patience, kill_at_s

EXIT_KILLED = 137


class Work(Protocol):
    """The work of jobs in a world, as checkpoints keep it."""

    def saved(self, job: JobRecord, now_s: float) -> None:
        """A checkpoint was written."""

    def left(self, job: JobRecord, now_s: float) -> None:
        """The run left right after a checkpoint: all of its work is kept."""

    def lost(self, job: JobRecord, now_s: float) -> None:
        """The run ended otherwise: back to its last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    every_s: float = 0.0
    patience: Patience = field(default_factory=Patience)

    @property
    def saves(self) -> Saves:
        return Saves.OWN if self.every_s else Saves.ANYWHERE

    def next(self, run: Run, now_s: float) -> Sequence[Event]:
        """The event of the first checkpoint after now, if runs save by themselves."""
        return (CheckpointSeen(run=run.id, at_s=self._next_s(run, now_s)),) if self.every_s else ()

    def leave(self, job: JobRecord, run: Run, now_s: float, epoch: int) -> Sequence[Event]:
        """The events by which a run leaves when it is asked to stop now, in `epoch`. A run that has not begun saves
        nothing."""
        if run.began_s is None:
            return (_left(run, now_s),)
        agreed = StopAgreed(run=run.id, epoch=epoch, step=1, at_s=now_s)
        at_s = self._next_s(run, now_s) if self.every_s else now_s
        kill_s = kill_at_s(job, run, self.patience) if self.every_s else None
        return (agreed, _left(run, at_s) if kill_s is None or at_s <= kill_s else _killed(run, kill_s))

    def settle(self, event: CheckpointSeen | RunEnded, job: JobRecord, run: Run, work: Work) -> Sequence[Event]:
        """Apply this event to the work of its job; returns the next checkpoint, if one follows. An end changes nothing
        if the run had not begun or does not save by itself."""
        if isinstance(event, CheckpointSeen):
            work.saved(job, event.at_s)
            return self.next(run, event.at_s)
        if self.every_s and run.began_s is not None:
            end = work.left if left_at_checkpoint(event) else work.lost
            end(job, event.at_s)
        return ()

    def _next_s(self, run: Run, now_s: float) -> float:
        assert run.began_s is not None  # it trains
        return run.began_s + (int((now_s - run.began_s) / self.every_s * (1 + 1e-12)) + 1) * self.every_s


def _left(run: Run, at_s: float) -> RunEnded:
    return RunEnded(run=run.id, reason=ExitReason.STOPPED, at_s=at_s, exit_code=EXIT_STOPPED)


def _killed(run: Run, at_s: float) -> RunEnded:
    return RunEnded(run=run.id, reason=ExitReason.STOPPED, at_s=at_s, exit_code=EXIT_KILLED)
