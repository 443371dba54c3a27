"""Lightning:

    callback = SwellCallback()
    trainer = Trainer(callbacks=[callback], max_epochs=…)
    trainer.fit(model, loader, ckpt_path=callback.resume_from())

Reports epochs, steps and logged metrics; saves Lightning's own checkpoint (weights, optimizers, loops) after each
epoch; has the trainer end by itself when the run is to stop, and then leaves with the exit code of a stop.

For long epochs, `SwellCallback(save_every=1000)` counts steps instead: it saves after each 1000 and wherever the
run is to stop, and resumes at the very sample, whatever the number of GPUs then. For that it gives out the order:

    loader = DataLoader(data, batch_sampler=callback.batches(len(data), 256))   # 256 over all GPUs
    trainer = Trainer(callbacks=[callback], use_distributed_sampler=False, max_steps=…)
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell import sdk
from swell.sdk.order import Batches, BatchIterator, Order
from swell.sdk.settings import read_place

if TYPE_CHECKING:
    Callback = object
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

NAME = "last-swell.ckpt"


class EpochBatches(Batches):
    """One pass each time it is iterated over; the first time, what is left of the one that was stopped within."""

    def __iter__(self) -> BatchIterator:
        place = read_place()  # Lightning may have started other processes since the loader was made
        self.rank, self.world_size = place.rank, place.world_size
        return super().__iter__()

    def __len__(self) -> int:
        """Of a whole pass: Lightning counts the batches that were done before."""
        return -(-self.order.samples // self.order.batch)


class SwellCallback(Callback):
    def __init__(self, save_every: int = 0) -> None:
        """`save_every`: steps between checkpoints, for stops within an epoch; 0: one after each epoch, stops there."""
        super().__init__()
        self._within = save_every > 0
        self._run: Any = sdk.training(steps=0, save_every=save_every) if self._within else sdk.current()
        self._known = False
        self._leaving = False
        self._order: Order | None = None
        self._steps = 0  # done, over all attempts
        self._samples = 0

    def resume_from(self) -> str | None:
        """The last checkpoint, or None at the first attempt."""
        path = Path(self._run.checkpoint_dir, NAME)
        return str(path) if path.exists() else None

    def batches(self, samples: int, batch: int = 0, *, seed: int = 0, shuffle: bool = True) -> EpochBatches:
        """This rank's indices of each global batch of `batch` samples, for `DataLoader(batch_sampler=…)`. A step uses
        the same samples whatever the number of GPUs."""
        order = self._order = Order(samples, batch or self._run.batch_size, seed=seed, shuffle=shuffle)

        def pass_ends() -> int:
            return (self._samples // order.samples + 1) * order.samples

        return EpochBatches(order, lambda: self._samples, pass_ends, self._run.rank, self._run.world_size)

    # Within epochs: what this callback knows is in Lightning's checkpoint, and restored before data is read

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps, "samples": self._samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._steps, self._samples = int(state_dict["steps"]), int(state_dict["samples"])

    def on_train_start(self, trainer: Any, module: Any) -> None:
        if not self._within:
            return
        if self._order is None:
            raise ValueError(
                "to stop within an epoch Swell must know the order of the samples: give the loader "
                "`batch_sampler=callback.batches(len(data), batch_size)`, or leave `save_every` out"
            )
        total = trainer.estimated_stepping_batches
        if not math.isfinite(total):
            raise ValueError("how many steps? Give the Trainer `max_steps` or `max_epochs`")
        self._run.batch_size = self._order.batch * int(trainer.accumulate_grad_batches)
        self._run.start(self._steps, int(total))

    def _after_batch(self, trainer: Any, batch_idx: int) -> None:
        assert self._order is not None  # `on_train_start`
        self._samples = self._order.after(self._samples)
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        self._steps += 1
        stops = self._run.end_step()
        if stops or self._run.checkpoint_due():
            self._log(trainer)
            self._save(trainer)
            self._run.saved()
        if stops:
            self._end(trainer)

    def _end(self, trainer: Any) -> None:
        """The trainer ends by itself, without a validation that nobody would see."""
        self._leaving = trainer.should_stop = True
        trainer.limit_val_batches = 0
        trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = 0, None

    # Hooks

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        if self._within:
            return
        if not self._known:
            self._known = True
            self._run.continue_at(int(trainer.current_epoch), max(0, int(trainer.max_epochs or 0)))
        self._run.start_epoch()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._within:
            self._after_batch(trainer, batch_idx)
        else:
            self._run.measure()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self._log(trainer)
        if self._within:
            return
        self._run.end_epoch()
        self._save(trainer)
        last = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch + 1
        if not last and not self._run.boundary():
            self._leaving = trainer.should_stop = True

    def _log(self, trainer: Any) -> None:
        self._run.log(**{name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1})

    def _save(self, trainer: Any) -> None:
        """Every rank takes part (strategies may gather); the file appears whole or not at all."""
        path = Path(self._run.checkpoint_dir, NAME)
        beside = path.with_name(f".{NAME}")
        trainer.save_checkpoint(str(beside))
        if trainer.is_global_zero:
            beside.replace(path)

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        if self._leaving:
            self._run.leave()
        self._run.finish()
