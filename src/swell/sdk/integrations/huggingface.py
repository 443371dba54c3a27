"""Hugging Face Trainer:

    callback = SwellCallback()
    arguments = TrainingArguments(output_dir=callback.output_dir, save_strategy="epoch", …)
    trainer = Trainer(…, args=arguments, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from())

Checkpoints are the Trainer's own. A stop is decided right after one was saved; the Trainer then ends by itself and the
process leaves with the exit code of a stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell import sdk

if TYPE_CHECKING:
    TrainerCallback = object
else:
    from transformers import TrainerCallback


class SwellCallback(TrainerCallback):
    def __init__(self) -> None:
        self._run = sdk.current()
        self._known = False
        self._leaving = False

    @property
    def output_dir(self) -> str:
        return str(self._run.checkpoint_dir)

    def resume_from(self) -> str | None:
        """The newest checkpoint, or None at the first attempt."""
        found = [path for path in Path(self.output_dir).glob("checkpoint-*") if (path / "trainer_state.json").exists()]
        return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._known:
            self._known = True
            self._run.continue_at(round(state.epoch or 0), round(args.num_train_epochs))
        self._run.start_epoch()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run.measure()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self._run.log(**{name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))})

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run.end_epoch()
        control.should_save = True  # happens after this; `on_save` follows

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        whole = abs(state.epoch - round(state.epoch)) < 1e-6
        if whole and round(state.epoch) < round(args.num_train_epochs) and not self._run.boundary():
            self._leaving = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._leaving:
            self._run.leave()
        self._run.finish()
