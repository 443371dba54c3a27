"""`Training`, the object that training code holds: epochs and steps to iterate over, metrics, checkpoints, clean stops.

Rules that everything here keeps:
- A boundary (the start of an epoch, or `should_stop` after a step) is the only place where a run stops.
- An epoch counts as done once training has come to the next boundary: the user's own checkpoint code has run by then.
- The daemon never makes the training fail or wait, except at a stop that all ranks have promised (`gate`, bounded).
- Outside Swell everything works, and no reports are sent.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Sized, TypeVar  # noqa: UP035  see settings.py

import swell.sdk.checkpoint as ck
from swell.sdk.gate import PATIENCE_S, Gate
from swell.sdk.gpu import GpuMemory
from swell.sdk.journal import Journal
from swell.sdk.leaving import EXIT_STOPPED, LEAVING_S, patience_at_end_s
from swell.sdk.link import Link
from swell.sdk.meter import Meter, epoch_entry
from swell.sdk.order import Batches, Order
from swell.sdk.outbox import Outbox
from swell.sdk.ranks import wait_for_all
from swell.sdk.resuming import batches_to_skip
from swell.sdk.settings import Settings, read_place, read_settings
from swell.sdk.termination import Termination

AGREE_S = 10.0
"""After SIGTERM several ranks try this long to agree on where to stop; then each leaves at its next boundary."""

PERCENTILES_EVERY_S = 1.0

LONG_EPOCH_S = 30.0
"""A run's first epoch that takes longer is reported once from within: by then its speed is known, and it is news."""

Item = TypeVar("Item")


class Training:
    """One training run of this process. Use it as a context manager, or let the end of the process close it."""

    def __init__(
        self,
        *,
        epochs: int = 0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        keep: int = ck.KEEP,
        settings: Settings | None = None,
    ) -> None:
        self.unit = "epoch"  # what progress is counted in
        self._settings = settings if settings is not None else read_settings()
        self._total = epochs or self._settings.epochs
        self._dir = Path(checkpoint_dir) if checkpoint_dir else None
        self._keep = keep
        self.batch_size = self._settings.batch_size  # over all GPUs; on each, and how often in a step (0: uneven):
        self.local_batch, self.accumulation = self._settings.local_batch, self._settings.accumulation
        self.goodput = 0.0  # useful samples/s, set by adaptive batch sizes
        self.batching: dict[str, Any] | None = None  # how the batch was split, set by them too
        self.within: Callable[[], dict[str, Any]] | None = None  # all three, of the epoch that runs
        self.samples_done = 0  # over all ranks and attempts, where `batches` gives out their order
        self._order: Order | None = None
        self._place = read_place()
        self._meter, self._outbox = Meter(), Outbox()
        self._termination = Termination()
        self._gate = Gate(PATIENCE_S, lambda: self._leaves_alone())
        self._journal = Journal(self._settings.journal)
        self._memory = GpuMemory(self._settings.shared_gpu)
        self._link: Link | None = None
        self._metrics: dict[str, float] = {}
        self._epoch: int | None = None  # the one that runs
        self._next: int | None = None  # the one to begin; None until it is known where to resume
        self._finished: dict[str, Any] | None = None  # an epoch that ended, not yet known to be checkpointed
        self._epochs_done = self._settings.epochs_done
        self._progress = -1  # epochs done as last written to the progress file
        self._saved = False  # run.save is used: the progress file is not needed
        self._skip = 0  # batches of the resumed epoch that are done
        self._batches = 0  # done in this epoch
        self._size = 0  # batches of a whole epoch; 0: unknown
        self._saved_size = 0  # the same when the checkpoint was written that this run resumed from
        self._speed_reported = False  # of this run, from within its first epoch
        self._boundaries = 0  # step boundaries passed in this epoch
        self._in_steps = self._last_batch = False
        self._stop_here = False  # a stop was agreed within this epoch
        self._began_s = time.monotonic()
        self._percentiles_s = 0.0
        self._closed = False

    # What the process is and has

    @property
    def inside(self) -> bool:
        """Whether this process runs under Swell."""
        return self._settings.inside

    @property
    def rank(self) -> int:
        return self._place.rank

    @property
    def world_size(self) -> int:
        return self._place.world_size

    @property
    def local_rank(self) -> int:
        return self._place.local_rank

    @property
    def gpus(self) -> int:
        """GPUs of the whole run."""
        return self._settings.gpus

    @property
    def epochs_done(self) -> int:
        """Whole epochs done, over all attempts, as far as a checkpoint covers them."""
        return self._epochs_done

    @property
    def resume_at(self) -> int:
        """The epoch that comes next."""
        return self._upcoming()

    @property
    def stopping(self) -> bool:
        """A stop is on its way: it happens at a boundary, not before."""
        return self._gate.pending or self._termination.asked

    @property
    def step_s(self) -> float:
        """Mean time of a step in this epoch."""
        return self._meter.step_s

    @property
    def median_step_s(self) -> float:
        """Of the latest steps in this epoch: unlike the mean, a slow first step or a disturbed one does not move it."""
        return self._meter.median_step_s

    @property
    def checkpoint_dir(self) -> Path:
        """The directory whose files survive a stop. Outside Swell: a temporary directory of this process."""
        if self._dir is None:
            given = self._settings.checkpoint_dir
            self._dir = Path(given or tempfile.mkdtemp(prefix="swell-"))
        self._dir.mkdir(parents=True, exist_ok=True)
        return self._dir

    # Iterators

    def epochs(self, total: int = 0) -> Iterator[int]:
        """The epochs that are left, numbered over all attempts. Leaves the process when the run is to stop."""
        self._total = total or self._total
        if not self._total:
            raise ValueError("how many epochs? Say run.epochs(10), or `epochs: 10` in the job file")
        while self._upcoming() < self._total:
            self.start_epoch()
            yield self._epoch or 0
            self.end_epoch()
        self._settle()
        self._note()

    def steps(self, loader: Iterable[Item], *, restored: bool = False) -> Iterator[Item]:
        """The batches of `loader`, timed. After a stop within an epoch, those already done are passed over, unless the
        loader was `restored` and begins after them by itself (torchdata's StatefulDataLoader)."""
        size = len(loader) if isinstance(loader, Sized) else -1
        skip, before = self._resumed(size, restored)
        own = restored and self._order is None  # its length is that of the whole epoch; the library's, of what is left
        whole = size if own or size < 0 else size + before
        self._size = max(0, whole)
        self._batches = skip + before
        self._in_steps = True
        self._meter.resume()
        try:
            for index, batch in enumerate(loader):
                if index < skip:
                    continue
                self._batches = before + index + 1
                self._last_batch = self._batches == whole
                self._advance_samples()  # before the yield: a user who breaks the loop and saves has used this batch
                yield batch
                self._meter.step()
        finally:
            self._in_steps = False

    def _resumed(self, size: int, restored: bool) -> tuple[int, int]:
        """Of the epoch that was stopped within: (batches of the loader to pass over, batches it does not give again).
        The library's own order and a restored loader begin after them; another loader begins anew."""
        done, self._skip = self._skip, 0
        if self._order is not None or restored:
            return 0, done
        return batches_to_skip(done, size, self._saved_size), 0

    def batches(self, samples: int, batch: int = 0, *, seed: int = 0, shuffle: bool = True) -> Batches:
        """This rank's indices of each global batch of `batch` samples (unset: `batch_size` of the job file), of a data
        set of `samples`. Each sample comes exactly once in a pass, however often the training is stopped and resized,
        and every rank has some of every batch. Iterate over it, or give it to torch's DataLoader as `batch_sampler`."""
        order = Order(samples, batch or self.batch_size, seed=seed, shuffle=shuffle)
        self._order = order
        return Batches(order, lambda: self.samples_done, self._pass_ends, self.rank, self.world_size)

    def _pass_ends(self) -> int:
        """The position where the epoch that runs ends."""
        order = self._order
        assert order is not None  # `batches` has set it
        return (self.samples_done // order.samples + 1) * order.samples

    def _advance_samples(self) -> None:
        """Count the samples of one global batch as used."""
        if self._order is not None:
            self.samples_done = self._order.after(self.samples_done)

    # Plain calls

    def start_epoch(self) -> int:
        """A boundary: call it before each epoch. Leaves the process when the run is to stop here."""
        if not self.boundary():
            self.leave()
        epoch = self._upcoming()
        self._epoch, self._next = epoch, epoch + 1
        self._batches = self._boundaries = 0
        self._in_steps = self._last_batch = False
        self._metrics = {}
        self._meter.begin_epoch()
        return epoch

    def boundary(self) -> bool:
        """May the next epoch begin? For frameworks that end by themselves when asked to: if not, make sure that `leave`
        is called. The epoch before counts as done from here on."""
        if self._epoch is not None and self._finished is None:
            self.end_epoch()
        self._settle()
        self._place = read_place()
        at = (self._upcoming(), 0)
        self._open(at[0])
        return not self._leaves_alone() and self._gate.arrive(at) and not self._leaves_alone()

    def _leaves_alone(self) -> bool:
        """SIGTERM came, and no agreement on where to stop is possible: one process, or no daemon to ask."""
        if not self._termination.asked:
            return False
        link = self._link
        return self._place.world_size == 1 or link is None or not link.healthy or self._termination.for_s > AGREE_S

    def continue_at(self, epoch: int, epochs: int = 0) -> None:
        """The framework has restored its own checkpoint: `epoch` comes next, of `epochs` (0: unset)."""
        self._next = self._epochs_done = epoch
        self._total = epochs or self._total
        self._saved = True
        self._note()

    def measure(self, samples: int = 0) -> None:
        """The end of a step. `samples`: how many this process has used in it."""
        self._meter.step(samples)
        if not self._in_steps:
            self._advance_samples()

    def end_epoch(self) -> None:
        """The epoch, validation included, is over. It counts once its checkpoint has had its chance to be written."""
        if self._stop_here:
            self.leave()
        if self._epoch is None:
            return
        entry = epoch_entry(
            self._meter,
            epoch=self._epoch + 1,
            epoch_s=self._meter.epoch_s,
            world_size=self._place.world_size,
            dataset_size=self._settings.dataset_size,
        )
        self._finished = entry
        self._epoch = None

    def log(self, **metrics: Any) -> None:
        """Losses, accuracies, anything that is a number. The last value of each goes into the epoch's record."""
        at_s = time.time()
        for name, value in metrics.items():
            number = float(value.detach() if hasattr(value, "detach") else value)
            if not math.isfinite(number):
                continue  # JSON has no NaN; the job's log shows a loss that became NaN
            self._metrics[name] = number
            if self._settings.inside and self._place.rank == 0:
                self._outbox.add_point(name, at_s, number)

    def should_stop(self) -> bool:
        """Ask after a step, on every rank: True when all ranks stop here. Then break, save, and let the loop go on."""
        if self._stop_here:
            return True
        if self._last_batch:
            return False  # the end of the epoch is the better place
        if self._link is not None:
            self._link.steps = True
        self._boundaries += 1
        self._stop_here = self._leaves_alone() or not self._gate.arrive((self._epoch or 0, self._boundaries))
        return self._stop_here

    # Checkpoints

    def save(self, value: Any) -> None:
        """Keep `value` (anything that pickles) with how far training is. Rank 0 writes, the others may call it too."""
        self._saved = True
        if self._place.rank == 0:
            done, step = self._reached()
            checkpoint = ck.Checkpoint(done, step, value, samples=self.samples_done, size=self._size)
            ck.save(self.checkpoint_dir, checkpoint, self._keep)
        if self._finished is not None:
            self._settle()

    def load(self, default: Any = None) -> Any:
        """The last saved value, or `default`. The next epoch is the one after it."""
        found = ck.load(self.checkpoint_dir)
        self._saved = True
        self._next, self._skip = (found.epochs_done, found.step) if found else (0, 0)
        self.samples_done, self._saved_size = (found.samples, found.size) if found else (0, 0)
        self._epochs_done = self._next
        self._note()
        return found.value if found else default

    def _reached(self) -> tuple[int, int]:
        """(whole epochs, steps of the next one) that a checkpoint written now covers."""
        if self._epoch is None:
            return (self._finished["epoch"] if self._finished else self._epochs_done), 0
        within = self._stop_here or (self._in_steps and not self._last_batch)
        return (self._epoch, self._batches) if within else (self._epoch + 1, 0)

    # The way out

    def leave(self) -> None:
        """Stop here, to be continued by the next attempt: reports, then ends the process with its own exit code."""
        self._before_leaving()
        done = self._epochs_done
        print(f"swell: stopping as asked after {done} {self.unit}s; the next attempt resumes here", file=sys.stderr)
        self._close(LEAVING_S)
        if self._settings.left_mark:
            Path(self._settings.left_mark).touch()
            raise SystemExit(0)
        raise SystemExit(EXIT_STOPPED)

    def _before_leaving(self) -> None:
        """Wait for rank 0, which may still write for all ranks: once one rank has left, the others have little time."""
        if self._gate.agreed is not None and self._place.world_size > 1:
            wait_for_all()

    def finish(self) -> None:
        """Training is over. Called by the context manager, else at the end of the process."""
        if self._closed:
            return
        if self._epoch is not None and not self._stop_here:
            self.end_epoch()
        self._settle()
        self._gate.begun = (max(self._total, self._epochs_done), 0)
        self._close(patience_at_end_s(self._link, self._began_s))

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.finish()
        elif not self._closed:
            self._close(patience_at_end_s(self._link, self._began_s))

    def _close(self, budget_s: float) -> None:
        self._closed = True
        self._termination.restore()
        self._write_progress()
        if self._link is not None:
            self._link.flush(budget_s)

    # Within

    def _upcoming(self) -> int:
        if self._next is None:
            self._next = self._epochs_done = max(self._settings.epochs_done, self._written_progress())
        return self._next

    def _written_progress(self) -> int:
        """The progress file lies beside the checkpoints, so it survives reports that got lost."""
        return ck.read_progress(self.checkpoint_dir) if self._settings.checkpoint_dir else 0

    def _open(self, epoch: int) -> None:
        """At the first boundary: from here on the run can stop and resume."""
        if self._link is not None or not self._settings.inside or self._place.rank >= self._place.world_size:
            return
        self._termination.watch()
        self._gate.begun = self._place_of(epoch)
        self._outbox.began = self._began(epoch) if self._place.rank == 0 else None
        self._link = Link(
            self._settings, self._gate, self._outbox, lambda: self._place, self._position, self._in_background
        )
        self._link.epochs = self._total if self.unit == "epoch" else 0
        self._link.steps = self.unit != "epoch"  # from its first report on: else stops are agreed for epoch ends
        self._link.terminating = lambda: self._termination.asked
        self._note()
        self._link.start()
        atexit.register(self._at_exit)

    def _place_of(self, epoch: int) -> tuple[int, int]:
        return epoch, 0

    def _began(self, epoch: int) -> dict[str, Any]:
        """The first report of this run: where it resumes, and how much there is to do."""
        return {"epoch": epoch, "epochs": self._total, "unit": self.unit}

    def _settle(self) -> None:
        """The boundary after an epoch: the epoch counts as done from here on."""
        entry, self._finished = self._finished, None
        if entry is None:
            return
        self._epochs_done = entry["epoch"]
        self._note()
        if not self._settings.inside or self._place.rank != 0:
            return
        at_s = time.time()
        if at_s - self._percentiles_s >= PERCENTILES_EVERY_S:
            self._percentiles_s = at_s
            for name, value in self._meter.percentiles().items():
                self._outbox.add_point(name, at_s, value)
        self._speed_reported = True
        self._outbox.add_epoch({**entry, **self._circumstances(), "metrics": dict(self._metrics)})

    def _note(self) -> None:
        """Note the epochs done in the journal of the run, which no lost report affects."""
        if self._settings.inside and self._place.rank == 0:
            self._journal.note(self._epochs_done, self._total, self.unit)

    def _tell_speed(self) -> None:
        """Report from within a long first epoch of this run: no epoch has ended, but its speed is known."""
        epoch, step_s = self._epoch, self._meter.step_s
        if self._speed_reported or epoch is None or self._place.rank != 0 or not self._size or step_s <= 0.0:
            return
        if self._meter.epoch_s < LONG_EPOCH_S or self._meter.samples_said or not self._in_steps:
            return
        self._speed_reported = True
        entry = epoch_entry(
            self._meter,
            epoch=epoch,
            epoch_s=self._size * step_s,
            world_size=self._place.world_size,
            dataset_size=self._settings.dataset_size,
        )
        within = self.within() if self.within is not None else {}
        self._outbox.add_epoch({**entry, **self._circumstances(), **within, "count": 0})

    def _circumstances(self) -> dict[str, Any]:
        moving = self._settings.launcher == "horovod"
        return {
            "gpus": self._place.world_size if moving else self._settings.gpus,
            "nodes": self._settings.nodes,
            "gpu_type": self._settings.gpu_type,
            "batch_size": self.batch_size,
            "goodput": self.goodput,
            "gpu_memory_mib": self._memory.peak_mib,
            "batching": self.batching,
            "saves": self._saves(),
        }

    def _saves(self) -> str:
        """Where a stop finds a checkpoint: after each epoch, or, where training asks `should_stop`, anywhere."""
        return "anywhere" if self._link is not None and self._link.steps else "epochs"

    def _position(self) -> tuple[int, int]:
        begun = self._gate.begun
        if self._link is not None and self._link.steps:
            return begun
        return begun[0], self._meter.steps

    def _in_background(self) -> None:
        """Between reports, in their thread."""
        self._memory.sample()
        self._tell_speed()
        self._write_progress()

    def _write_progress(self) -> None:
        done = self._epochs_done
        if self._saved or not self._settings.inside or self._place.rank != 0 or done == self._progress:
            return
        try:
            ck.write_progress(self.checkpoint_dir, done)
            self._progress = done
        except OSError:
            pass  # a full disk: the checkpoint code reports it

    def _at_exit(self) -> None:
        """The end of a script without the context manager. After a crash nothing more is counted."""
        if not self._closed and getattr(sys, "last_value", None) is None:
            self.finish()
