"""A world of jobs of which only the duration on a number of GPUs is known (traces, job files).

`sim.simulate` makes it; the engine asks it what a run will report. How a job would scale is assumed: each further GPU
costs a part `loss` of one in communication, each further node `node_loss` more. A job reports its progress in ten
epochs (fewer if short), so that the daemon's own speed book has something to learn from; a silent one reports nothing,
and stops at once without losing work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from swell.core.events import CheckpointSeen, EpochEnded, Event, ExitReason, RunEnded, RunStarted, Saves, TrainingBegan
from swell.core.evolve import maker
from swell.core.ids import JobId
from swell.core.snapshot import Curve
from swell.core.state import JobRecord, Run
from swell.ports import Remaining
from swell.sim.checkpoints import Checkpoints
from swell.sim.noise import Noise
from swell.sim.training_world import REPORT_S
from swell.sim.workload import Arrival
from swell.sim.world import run_of

EPOCHS = 10
LOSS = 0.08
NODE_LOSS = 0.08
_make_report, _make_remaining = maker(EpochEnded), maker(Remaining)


class Scaling:
    """Speed on k GPUs over n nodes, relative to one GPU; the same on every type."""

    __slots__ = ("_curve", "loss", "max_gpus", "node_loss", "per_node")

    def __init__(self, max_gpus: int, loss: float = LOSS, node_loss: float = NODE_LOSS, per_node: int = 8) -> None:
        self.max_gpus, self.loss, self.node_loss, self.per_node = max_gpus, loss, node_loss, per_node
        self._curve: Curve = ()

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        return gpus / (1 + self.loss * (gpus - 1) + self.node_loss * (nodes - 1)) if gpus else 1.0

    def curve(self, gpu_type: str) -> Curve:
        if not self._curve:
            sizes = range(1, self.max_gpus + 1)
            speeds = (self.rate(k, -(-k // self.per_node), "") for k in sizes)
            self._curve = (0.0, *accumulate(speeds, max))
        return self._curve


@lru_cache(maxsize=1 << 12)
def scaling_of(max_gpus: int, loss: float = LOSS, node_loss: float = NODE_LOSS, per_node: int = 8) -> Scaling:
    """The same object for all jobs that scale alike."""
    return Scaling(max_gpus, loss, node_loss, per_node)


@dataclass(slots=True)
class Task:
    """The truth about one job: what is left of it, at speed 1."""

    scaling: Scaling
    work_s: float
    left_s: float
    epochs: int
    fails: bool = False
    silent: bool = False  # an ad-hoc script: it reports nothing before it ends
    as_of_s: float = 0.0
    rate: float = 0.0  # since then
    saved_left_s: float = 0.0  # what was left at its last checkpoint, where it saves by itself
    turns: int = 0  # how often its progress changed from what was expected before

    def at(self, now_s: float) -> float:
        passed_s = now_s - self.as_of_s
        return max(0.0, self.left_s - self.rate * passed_s) if passed_s > 0.0 else max(0.0, self.left_s)

    def halt(self, at_s: float) -> None:
        """It makes no progress from then on; if that is in the future, none until then either."""
        self.turns, self.as_of_s, self.rate = self.turns + 1, at_s, 0.0

    def done_epochs(self) -> int:
        return int((1 - self.left_s / self.work_s) * self.epochs + 1e-6)


class Durations:
    """The world. `truth` of an arrival: duration_s (on the GPUs asked for), fails, silent, loss."""

    def __init__(
        self,
        *,
        restart_s: float = 30.0,
        per_node: int = 8,
        noise: Noise | None = None,
        seed: int = 0,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._checkpoints = checkpoints or Checkpoints()
        self._restart_s = restart_s
        self._per_node = per_node
        self._noise = noise or Noise()
        self._seed = seed
        self.tasks: dict[JobId, Task] = {}

    def submitted(self, job: JobRecord, arrival: Arrival) -> None:
        truth, request = arrival.truth, job.spec.gpus
        loss, node_loss = truth.get("loss", LOSS), truth.get("node_loss", NODE_LOSS)
        scaling = scaling_of(max(1, request.max), loss, node_loss, self._per_node)
        duration_s = max(1e-3, truth.get("duration_s", job.spec.estimated_s))
        duration_s *= self._noise.of_job(job.id, self._seed)
        asked = max(1, request.requested)
        work_s = duration_s * scaling.rate(asked, -(-asked // self._per_node), "")
        epochs = job.spec.epochs or max(1, min(EPOCHS, int(duration_s / REPORT_S)))
        fails, silent = bool(truth.get("fails", 0.0)), bool(truth.get("silent", 0.0))
        self.tasks[job.id] = Task(scaling, work_s, work_s, epochs, fails=fails, silent=silent)

    def launched(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        task, run = self.tasks[job.id], run_of(job)
        began_s = now_s + self._restart_s
        task.halt(began_s)
        started = RunStarted(run=run.id, at_s=now_s)
        if task.silent:
            return (started, self._silent_end(task, run))
        saves = self._checkpoints.saves
        began = TrainingBegan(run=run.id, at_s=began_s, epoch=task.done_epochs(), epochs=task.epochs, saves=saves)
        return (started, began)

    def _silent_end(self, task: Task, run: Run) -> RunEnded:
        """It makes progress from `as_of_s` on; that is when it will be done."""
        self._set_rate(task, run)
        return self._end(task, run, task.as_of_s + task.left_s / task.rate)

    def after(self, event: Event, job: JobRecord) -> Sequence[Event]:
        saves: Sequence[Event] = ()
        if type(event) is EpochEnded:
            done = event.epoch
        elif type(event) is TrainingBegan:
            done = 0
            self.tasks[job.id].saved_left_s = self.tasks[job.id].left_s
            saves = self._checkpoints.next(run_of(job), event.at_s)
        elif isinstance(event, CheckpointSeen | RunEnded):
            return self._checkpoints.settle(event, job, run_of(job), self)
        else:
            return ()
        task, run = self.tasks[job.id], run_of(job)
        task.left_s, task.as_of_s = task.at(event.at_s), event.at_s
        if done >= task.epochs:
            task.left_s = 0.0
            return (self._end(task, run, event.at_s),)
        return (self._next_report(task, run, event.at_s), *saves)

    def saved(self, job: JobRecord, now_s: float) -> None:
        task = self.tasks[job.id]
        task.saved_left_s = task.at(now_s)

    def left(self, job: JobRecord, now_s: float) -> None:
        task = self.tasks[job.id]
        task.left_s = task.at(now_s)
        task.halt(now_s)

    def _end(self, task: Task, run: Run, now_s: float) -> RunEnded:
        if task.fails:
            return RunEnded(run=run.id, reason=ExitReason.USER_ERROR, at_s=now_s, exit_code=1)
        return RunEnded(run=run.id, reason=ExitReason.FINISHED, at_s=now_s, exit_code=0)

    def _next_report(self, task: Task, run: Run, now_s: float) -> EpochEnded:
        allocation = run.allocation
        gpus, nodes, gpu_type = allocation.gpus, len(allocation.parts), allocation.gpu_type
        self._set_rate(task, run)
        epoch_1_s = task.work_s / task.epochs
        count = max(1, int(REPORT_S * task.rate / epoch_1_s))
        done = task.done_epochs()
        epoch = min(task.epochs, done + count)
        at_s = now_s + max(0.0, task.left_s - epoch_1_s * (task.epochs - epoch)) / task.rate
        return _make_report(
            run=run.id,
            at_s=at_s,
            epoch=epoch,
            count=epoch - done,
            epoch_s=epoch_1_s / task.rate * self._noise.of_report(run.id, epoch, self._seed),
            gpus=gpus,
            nodes=nodes,
            gpu_type=gpu_type,
            unsaved=max(0, epoch - run.epochs_before) if self._checkpoints.saves is Saves.OWN else 0,
        )

    def _set_rate(self, task: Task, run: Run) -> None:
        allocation, slow = run.allocation, self._noise.of_run(run.id, self._seed)
        foretold = task.scaling.rate(allocation.gpus, len(allocation.parts), allocation.gpu_type)
        if task.rate != foretold or slow != 1.0:
            task.turns += 1
        task.rate = foretold * slow

    def stopping(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        task, run = self.tasks[job.id], run_of(job)
        if run.began_s is None or not self._checkpoints.every_s:
            self.left(job, now_s)
        return self._checkpoints.leave(job, run, now_s, task.done_epochs())

    def lost(self, job: JobRecord, now_s: float) -> None:
        task = self.tasks[job.id]
        by_itself = self._checkpoints.every_s and not task.silent
        task.left_s = task.saved_left_s if by_itself else task.work_s * (1 - job.epochs_done / task.epochs)
        task.halt(now_s)

    def resized(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        task, run = self.tasks[job.id], run_of(job)
        task.left_s, task.as_of_s = task.at(now_s), now_s
        task.turns += 1
        if task.silent:
            return (self._silent_end(task, run),)
        if run.began_s is None:
            return ()
        return (self._next_report(task, run, now_s), *self._checkpoints.next(run, now_s))

    def fair_s(self, job: JobRecord, share: Mapping[str, float]) -> float:
        task = self.tasks[job.id]
        most = max(share.values(), default=1.0)
        n = max(1, min(int(most), task.scaling.max_gpus))
        return self._restart_s + task.work_s / (task.scaling.curve("")[n] * min(1.0, most))


class TrueDurations:
    """The speed book that knows this world."""

    follows_records = True

    def __init__(self, world: Durations) -> None:
        self._world = world
        self._remaining: dict[JobId, tuple[int, Remaining]] = {}  # and after how many turns

    def learn(self, event: Event) -> None:
        """Nothing is learned; jobs that ended are dropped."""
        if type(event) is RunEnded and event.reason is not ExitReason.STOPPED:
            self._remaining.pop(event.run.job, None)

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Scaling:
        return self._world.tasks[job.id].scaling

    def remaining(self, job: JobRecord) -> Remaining:
        """The same object while the job gets on as it says. A new one each time half of it is over: near its end a
        remaining time is known only up to a fraction of the estimate (`JobView.remaining_s`)."""
        cached, task = self._remaining.get(job.id), self._world.tasks[job.id]
        if cached is not None and cached[0] == task.turns and task.left_s > 0.5 * cached[1].at_speed_1_s:
            return cached[1]
        remaining = _make_remaining(at_speed_1_s=task.left_s, as_of_s=task.as_of_s, sigma=0.0, known=True)
        self._remaining[job.id] = (task.turns, remaining)
        return remaining

    def alone(self, job: JobId) -> bool:
        """This world has no interference between jobs that share a GPU."""
        return False
