"""Lightning:

    callback = SwellCallback()
    trainer = Trainer(callbacks=[callback], max_epochs=…)
    trainer.fit(model, loader, ckpt_path=callback.resume_from())

Reports epochs, steps and logged metrics; saves Lightning's own checkpoint (weights, optimizers, loops) after each
epoch; has the trainer end by itself when the run is to stop, and then leaves with the exit code of a stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell import sdk

if TYPE_CHECKING:
    Callback = object
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

NAME = "last-swell.ckpt"


class SwellCallback(Callback):
    def __init__(self) -> None:
        super().__init__()
        self._run = sdk.current()
        self._known = False
        self._leaving = False

    def resume_from(self) -> str | None:
        """The last checkpoint, or None at the first attempt."""
        path = Path(self._run.checkpoint_dir, NAME)
        return str(path) if path.exists() else None

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        if not self._known:
            self._known = True
            self._run.continue_at(int(trainer.current_epoch), max(0, int(trainer.max_epochs or 0)))
        self._run.start_epoch()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._run.measure()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self._run.log(**{name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1})
        self._run.end_epoch()
        self._save(trainer)
        last = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch + 1
        if not last and not self._run.boundary():
            self._leaving = trainer.should_stop = True

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
