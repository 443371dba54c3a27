"""PyTorch's distributed checkpoints (`torch.distributed.checkpoint`): each rank writes its part, beside the training.

    run = swell.training(steps=…, save_every=…)
    checkpoints = ShardedCheckpoints(run, model, optimizer)     # DDP, FSDP2 (`fully_shard`) or a plain module
    checkpoints.load()                                          # the newest whole one, on any number of ranks
    for step in run.loop():
        …
        if run.checkpoint_due():
            checkpoints.save()

PyTorch copies the state, writes it in the background (`async_save`) and divides it anew when it is loaded on another
number of ranks. A checkpoint counts once every rank has written its part; a stop waits for that.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from swell.sdk.checkpoint import KEEP
from swell.sdk.steps import StepTraining

_NAME = re.compile(r"sharded-(\d+)")
METADATA = ".metadata"
"""PyTorch writes it last: a directory that has it is whole."""


class ShardedCheckpoints:
    """All ranks call each method at the same step."""

    def __init__(
        self, run: StepTraining, model: Any, optimizer: Any, *, keep: int = KEEP, background: bool = True
    ) -> None:
        self._run, self._model, self._optimizer = run, model, optimizer
        self._keep, self._background = keep, background
        # One of its own: the background's messages must not mix with the training's.
        self._group: Any = dist.new_group(backend="gloo") if dist.is_initialized() else None

    def load(self) -> bool:
        """Restore the newest whole checkpoint; the loop goes on after it. False: there is none."""
        step = self._newest()
        if step is None:
            return False
        state = self._state()
        dcp.load(state, checkpoint_id=self._path(step), process_group=self._group)
        set_state_dict(
            self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        progress = state["progress"]
        self._run.continue_at(int(progress["step"]), int(progress["done"]))
        self._run.samples_done = int(progress["samples"])
        return True

    def save(self) -> None:
        """After a step. Returns as soon as the state is copied; with `background=False` when it is on disk."""
        began_s = time.monotonic()
        self._run.before_save()
        self._remove_old()
        path = self._path(self._run.step)
        if self._background:
            self._run.saved_when(dcp.async_save(self._state(), checkpoint_id=path, process_group=self._group))
        else:
            dcp.save(self._state(), checkpoint_id=path, process_group=self._group)
            self._run.saved()
        self._run.stalled(time.monotonic() - began_s)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        run = self._run
        progress = {"step": run.step, "done": run.done, "samples": run.samples_done}
        return {"model": model, "optimizer": optimizer, "progress": progress}

    def _path(self, step: int) -> Path:
        return self._run.checkpoint_dir / f"sharded-{step:010d}"

    def _newest(self) -> int | None:
        """As rank 0 sees it: all ranks load the same."""
        found = [max((step for step, whole in self._found() if whole), default=None)]
        if self._group is not None:
            dist.broadcast_object_list(found, src=0, group=self._group)
        return found[0]

    def _found(self) -> list[tuple[int, bool]]:
        named = [(_NAME.fullmatch(path.name), path) for path in self._run.checkpoint_dir.iterdir()]
        return [(int(match[1]), (path / METADATA).exists()) for match, path in named if match]

    def _remove_old(self) -> None:
        """Nothing is being written now: what is not whole never will be."""
        if self._run.rank != 0:
            return
        found = sorted(self._found())
        whole = [step for step, is_whole in found if is_whole]
        for step, is_whole in found:
            if step != self._run.step and (not is_whole or step in whole[: -self._keep]):
                shutil.rmtree(self._path(step), ignore_errors=True)
