"""Lightning stopped after each of its steps in turn, resumed, and compared with an undisturbed run: bit for bit.

Run in the environment with PyTorch (`test_lightning_and_guide.py`). Prints how many stops were tried.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

import torch
from swell import sdk
from swell.sdk.integrations.lightning import SwellCallback

SAMPLES, BATCH, EPOCHS = 50, 8, 3  # the last batch of an epoch is smaller


class Line(pl.LightningModule):  # type: ignore[misc]  # Lightning is not there when this is checked
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
        self.seen: list[int] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        self.seen += batch[2].tolist()
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        return None

    def configure_optimizers(self) -> tuple[list[object], list[object]]:
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def attempt(directory: Path, stop_at: int, accumulate: int) -> tuple[object, Line, pl.Trainer]:
    """Until the end, or stopped after step `stop_at`. Returns its exit code."""
    pl.seed_everything(1, verbose=False)
    inputs = torch.randn(SAMPLES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True), torch.arange(SAMPLES))
    callback = SwellCallback(save_every=1000)
    run = callback._run
    run._dir = directory

    def boundary_at(step: int) -> bool:
        run._stop_here = step == stop_at
        return bool(run._stop_here)

    run._boundary_at = boundary_at
    module = Line()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulate,
        callbacks=[callback],
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    loader = DataLoader(data, batch_sampler=callback.batches(SAMPLES, BATCH))
    try:
        trainer.fit(module, loader, DataLoader(data, batch_size=25), ckpt_path=callback.resume_from())
    except SystemExit as left:
        return left.code, module, trainer
    return 0, module, trainer


def compared(accumulate: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        _, whole, trainer = attempt(Path(directory), -1, accumulate)
    for stop_at in range(1, trainer.global_step):
        with tempfile.TemporaryDirectory() as directory:
            code, first, _ = attempt(Path(directory), stop_at, accumulate)
            assert code == sdk.EXIT_STOPPED, (stop_at, code)
            code, second, resumed = attempt(Path(directory), -1, accumulate)
        assert code == 0, (stop_at, code)
        assert first.seen + second.seen == whole.seen, f"stopped after {stop_at}: other samples"
        assert torch.equal(second.net.weight, whole.net.weight), f"stopped after {stop_at}: other weights"
        assert resumed.global_step == trainer.global_step
    return int(trainer.global_step) - 1


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    stops = sum(compared(accumulate) for accumulate in (1, 2))
    print(f"stops {stops}")
    sys.exit(0)
