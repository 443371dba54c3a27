"""Hugging Face Trainer:

    callback = SwellCallback()
    arguments = TrainingArguments(output_dir=callback.output_dir, …)
    trainer = Trainer(…, args=callback.fit(arguments), callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from())

Checkpoints are the Trainer's own, at its own interval. A stop has it save at the current step, then it ends by itself
and the process leaves with the exit code of a stop. Progress is counted in steps.

The global batch (world size x batch per device x accumulation) stays what it was at the first attempt, or `batch_size`
of the job file, whatever the number of GPUs: `fit` derives batch and accumulation. The Trainer resumes by the number of
steps, so that another global batch would go on at another place of the data; a training with one is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell import sdk
from swell.sdk.checkpoint import write_whole
from swell.sdk.order import split_batch

if TYPE_CHECKING:
    TrainerCallback = object
else:
    from transformers import TrainerCallback

RECORD = "swell-batch.json"
"""In the output directory: the global batch that the checkpoints there were trained with."""


class SwellCallback(TrainerCallback):
    def __init__(self) -> None:
        self._run = sdk.training(steps=0)  # their number is known to the Trainer
        self._leaving = False

    @property
    def output_dir(self) -> str:
        return str(self._run.checkpoint_dir)

    def resume_from(self) -> str | None:
        """The newest whole checkpoint, or None at the first attempt."""
        found = [path for path in Path(self.output_dir).glob("checkpoint-*") if _state(path) is not None]
        return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None

    def fit(self, arguments: Any) -> Any:
        """The arguments with batch per device and accumulation for the devices that this attempt has."""
        batch = self._recorded() or self._run.batch_size
        if batch:
            devices, at_most = _devices(arguments), int(arguments.per_device_train_batch_size)
            local, accumulation = split_batch(batch, devices, at_most)
            arguments.per_device_train_batch_size = local
            arguments.gradient_accumulation_steps = accumulation
        return arguments

    def _recorded(self) -> int:
        """The global batch of the checkpoints that are there; 0: none yet."""
        try:
            return int(json.loads(Path(self.output_dir, RECORD).read_text())["global_batch"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        batch = _devices(args) * int(args.per_device_train_batch_size) * int(args.gradient_accumulation_steps)
        recorded = self._recorded()
        if state.global_step and recorded and batch != recorded:
            raise ValueError(
                f"the checkpoint was trained with {recorded} samples per step, and this attempt would use {batch}: it "
                "would go on at another place of the data. Give the Trainer `args=callback.fit(arguments)`."
            )
        if self._run.rank == 0:
            write_whole(Path(self.output_dir, RECORD), json.dumps({"global_batch": batch}).encode())
        self._run.batch_size = batch
        self._run.start(int(state.global_step), int(state.max_steps))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._run.end_step():
            self._leaving = control.should_save = True  # `on_save` follows

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self._run.log(**{name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))})

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run.saved()
        if self._leaving:
            control.should_training_stop = True  # not before: the checkpoint holds what `control` says

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._leaving:
            self._run.leave()
        self._run.finish()


def _devices(arguments: Any) -> int:
    """Of all processes; one process may have several (`DataParallel`)."""
    return int(arguments.world_size) * max(1, int(arguments.n_gpu))


def _state(checkpoint: Path) -> Any:
    """What the Trainer writes last into a checkpoint; None: it is not whole."""
    try:
        return json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return None
