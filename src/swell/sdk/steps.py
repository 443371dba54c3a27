"""Trainings that count steps, tokens or samples instead of epochs: one long loop, a checkpoint now and then.

    with swell.training(steps=600_000, save_every=1000) as run:
        state = run.load(default=new_state())
        for step in run.loop():
            loss = train(state, step)
            run.log(loss=loss)
            if run.checkpoint_due():
                run.save(state)          # or run.save(state, background=True)

A boundary is a checkpoint that was written. `checkpoint_due` asks for one every `save_every` steps and wherever the
run is to stop; a training with a rule of its own calls `saved` after each checkpoint that it wrote. All ranks must
reach the same boundaries: positions are (0, steps done), and the agreement of ranks is that of `session`.
"""

from __future__ import annotations

import time
from typing import Any, Iterator  # noqa: UP035  see settings.py

import swell.sdk.checkpoint as ck
from swell.sdk.saving import Saving
from swell.sdk.session import Training
from swell.sdk.settings import read_place

FIRST_REPORT_S, REPORT_EVERY_S = 2.0, 30.0
"""The first reports of progress come this soon, so that the speed is known early; later ones less and less often."""
AFTER_SAVE_S = 2.0
"""A new checkpoint is reported this soon after the last report, but at most one per REPORT_EVERY_S: a training that
saves at every step must not cause an event for each."""


class StepTraining(Training):
    """One training run of this process that counts in `unit`. `step` counts steps done, over all attempts."""

    def __init__(
        self,
        *,
        total: int = 0,
        unit: str = "step",
        save_every: int = 0,
        save_every_s: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if save_every < 0 or save_every_s < 0:
            raise ValueError("save_every and save_every_s must be at least 0; 0 is off")
        self.unit = unit
        self._total = total or self._settings.total_of(unit)
        self._save_every, self._save_every_s = save_every, save_every_s
        self.step = 0
        self.done = 0  # in `unit`
        self._saved_done = 0
        self._in_step = False
        self._counted = 0  # in `unit`, in this step
        self._known = False  # where to begin is known
        self._asks = False  # it asks after steps whether to save, so it can stop anywhere
        self._saved_s = self._reported_s = time.monotonic()
        self._reported_done = 0
        self._report_every_s = FIRST_REPORT_S
        self._news = False  # a checkpoint was written since the last report
        self._news_told_s = -REPORT_EVERY_S  # when the last one was reported
        self._saving = Saving(self._note_saved)
        self.save_stall_s = 0.0  # how long the last save held training up

    # The loop

    def loop(self, total: int = 0) -> Iterator[int]:
        """The steps that are left, numbered over all attempts. Leaves the process where the run is to stop."""
        self._total = total or self._total
        if not self._total:
            raise ValueError(f"how many {self.unit}s? Use swell.training({self.unit}s=1000), or set it in the job file")
        self._begin()
        while self.done < self._total:
            if self._stop_here:
                self.leave()
            self._in_step, self._counted = True, 0
            yield self.step
            self._end_step()
        self._stop_here = False  # all steps are done: nothing to resume
        self._settle()  # before code after the loop, which may take down what a save in the background still needs

    def count(self, amount: int) -> None:
        """Tokens or samples that all ranks together used in this step (units other than steps)."""
        self._counted += amount

    def checkpoint_due(self) -> bool:
        """Ask after each step, on every rank: True when a checkpoint is to be saved now. `save_every_s` is decided by
        rank 0 alone; the other ranks then get True only where the run stops, so saving must not need them."""
        self._asks = True
        after = self.step + 1 if self._in_step else self.step
        return self._boundary_at(after) or self._due_by_rule(after)

    def saved(self) -> None:
        """The training's own code has just written a checkpoint that covers this step: the run may stop after it."""
        self._end_step()
        self._saving.wait()
        self._note_saved(self.done)
        self._boundary_at(self.step)

    def before_save(self) -> None:
        """The training's own code is about to write a checkpoint that covers this step: the one before it is done."""
        self._end_step()
        self._saving.wait()

    def saved_when(self, write: Any) -> None:
        """The training's own code is writing a checkpoint that covers this step. `write` is a future of it (as of
        `torch.distributed.checkpoint.async_save`): it counts once that is done, and a stop waits for it."""
        self._end_step()
        self._saving.wait()
        self._saving.begin(write, self.done)
        self._boundary_at(self.step)

    # For frameworks, whose loop is not ours

    def start(self, step: int, total: int) -> None:
        """The framework has restored its own checkpoint, if any: `step` steps are done, of `total`."""
        self._saved = True
        self._place = read_place()  # it may have started other processes meanwhile
        self._total = total
        self.continue_at(step)
        self._begin()

    def end_step(self) -> bool:
        """After each step of the framework, on every rank. True when all ranks stop here: have it save, call `saved`
        and make sure that `leave` is called."""
        self._asks = self._in_step = True
        self._counted = 0
        self._end_step()
        return self.step < self._total and self._boundary_at(self.step)

    def _begin(self) -> None:
        """At the start of the loop: from here on the run can stop and resume."""
        if not self._known:
            done = max(self._settings.units_done, self._written_progress())
            self.continue_at(done if self.unit == "step" else 0, done)
        self._open(self.step)
        self._meter.resume()
        self._reported_done, self._reported_s = self.done, time.monotonic()
        self._saved_s = self._reported_s

    def _end_step(self) -> None:
        """Once for each step: at its end, or before, where a checkpoint covers it."""
        if not self._in_step:
            return
        self._in_step = False
        if self._saving.under_way:
            self._saving.look()
        self._meter.step()
        if self._reported_done == self.done and self._link is not None and not self._meter.steps > 1:
            self._reported_s = time.monotonic()  # the first step compiles and warms up: no measure of the speed
            self._reported_done += self._amount()
        self.done += self._amount()
        self.step += 1
        self._advance_samples()

    def _amount(self) -> int:
        return 1 if self.unit == "step" else self._counted or self.batch_size or 1

    def _boundary_at(self, step: int) -> bool:
        """True when all ranks stop at this step."""
        if not self._stop_here:
            self._stop_here = self._leaves_alone() or not self._gate.arrive((0, step))
        return self._stop_here

    def _due_by_rule(self, step: int) -> bool:
        if self._save_every and step % self._save_every == 0:
            return True
        if self.unit == "step" and step >= self._total:
            return True
        timed = self._save_every_s and self._place.rank == 0
        return bool(timed) and time.monotonic() - self._saved_s >= self._save_every_s

    # Checkpoints

    def save(self, value: Any, background: bool = False) -> None:
        """Keep `value` (anything that pickles) with how far training is. Rank 0 writes, the others may call it too.

        `background`: only a copy is made now; a thread writes it while training goes on. It counts once it is on disk:
        a stop, the end and the next save wait for it."""
        began_s = time.monotonic()
        self._end_step()
        self._saved = True
        self._saving.wait()
        if self._place.rank == 0:
            self._write(ck.Checkpoint(0, self.step, value, self.done, self.samples_done), background)
        else:
            self._note_saved(self.done)
        self.stalled(time.monotonic() - began_s)

    def _write(self, checkpoint: ck.Checkpoint, background: bool) -> None:
        body = ck.packed(checkpoint)
        write = (self.checkpoint_dir, checkpoint.epochs_done, checkpoint.step, body, self._keep)
        if background:
            self._saving.begin(self._saving.submit(ck.write, *write), self.done)
        else:
            ck.write(*write)
            self._note_saved(self.done)

    def stalled(self, seconds: float) -> None:
        """A save held the training up for this time: reported as the metric `save_stall_s`."""
        self.save_stall_s = seconds
        if self._settings.inside and self._place.rank == 0:
            self._outbox.add_point("save_stall_s", time.time(), seconds)

    def load(self, default: Any = None) -> Any:
        """The last saved value, or `default`. The loop goes on after the step that it covers."""
        found = ck.load(self.checkpoint_dir)
        self._saved = True
        self.continue_at(*((found.step, found.units) if found else (0, 0)))
        self.samples_done = found.samples if found else 0
        return found.value if found else default

    def continue_at(self, epoch: int, epochs: int = 0) -> None:
        """The training's own checkpoint was restored: step `epoch` comes next; `epochs`: tokens or samples done."""
        self._known = True
        self.step = epoch
        self.done = self._saved_done = epochs or epoch
        self._epochs_done = self.done
        self._note()

    def _note_saved(self, done: int) -> None:
        self._saved_done, self._saved_s = done, time.monotonic()
        self._epochs_done = done
        self._news = True
        self._note()

    # Reports

    def _settle(self) -> None:
        """The end of training: what it did last is saved and reported."""
        self._saving.wait()
        self._report_progress()

    def _before_leaving(self) -> None:
        self._saving.wait()
        super()._before_leaving()

    def _in_background(self) -> None:
        self._memory.sample()
        self._saving.look()
        now_s = time.monotonic()
        soon = self._news and now_s >= self._news_told_s + REPORT_EVERY_S
        if now_s - self._reported_s >= (AFTER_SAVE_S if soon else self._report_every_s):
            self._report_progress()
            self._report_every_s = min(REPORT_EVERY_S, 2.0 * self._report_every_s)
        self._write_progress()

    def _report_progress(self) -> None:
        """What was done since the last report, as one entry. Only rank 0 reports."""
        done, now_s = self.done, time.monotonic()
        count = done - self._reported_done
        if not self._settings.inside or self._place.rank != 0 or (count <= 0 and not self._news):
            return
        unit_s = (now_s - self._reported_s) / count if count > 0 else 0.0
        self._news_told_s = now_s if self._news else self._news_told_s
        self._news = False
        self._reported_done, self._reported_s = done, now_s
        entry = {
            "epoch": done,
            "count": max(0, count),
            "epoch_s": unit_s,
            "step_s": self._meter.median_step_s,
            "samples_per_s": 0.0,
            "unsaved": done - self._saved_done,
            "metrics": dict(self._metrics),
        }
        self._outbox.add_epoch({**entry, **self._circumstances()})

    def _saves(self) -> str:
        return "anywhere" if self._asks else "own"

    def _position(self) -> tuple[int, int]:
        return 0, self.step

    def _began(self, epoch: int) -> dict[str, Any]:
        return super()._began(self.done)

    def _place_of(self, epoch: int) -> tuple[int, int]:
        return 0, epoch

    def _pass_ends(self) -> int:
        return -1  # a loop by steps goes through the data as often as it takes

    def _upcoming(self) -> int:
        return self.step
