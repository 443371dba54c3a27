"""Elastic Lightning: two lines are there for Swell. By hand: `python train.py --epochs 3`.

`launcher: single` and `devices=NUM_GPUS`: Lightning starts its own processes on the GPUs that the run was given.
"""

import argparse
import os

import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

import torch
from swell.sdk.integrations.lightning import SwellCallback  # Swell
from torch import nn


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch} devices {self.trainer.world_size}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS_TO_BE_DONE", "5")))
    options = parser.parse_args()
    pl.seed_everything(1)
    x = torch.randn(640, 8)
    loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True).tanh()), batch_size=32)
    devices = max(1, int(os.environ.get("NUM_GPUS", "1")))
    callback = SwellCallback()  # Swell
    trainer = pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=options.epochs,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), loader, ckpt_path=callback.resume_from())  # Swell


if __name__ == "__main__":
    main()
