"""A transformer with Lightning whose epochs are long: stopped and resized at any step. By hand: `python train.py`.

The import and five more lines are there for Swell; they are marked. `launcher: single` and `devices=NUM_GPUS`:
Lightning starts its own processes on the GPUs that the run was given.
"""

import argparse
import os

import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

import torch
from swell.sdk.integrations.lightning import SwellCallback  # Swell
from torch import nn

VOCABULARY, CONTEXT, WIDTH = 32, 12, 16
BATCH = 16  # sequences per step, over all GPUs


class Transformer(pl.LightningModule):  # type: ignore[misc]  # Lightning is not there when this is checked
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=tokens.device)
        hidden = self.layer(self.tokens(inputs) + self.places.weight, src_mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = self.loss(batch[0])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=int(os.environ.get("EPOCHS_TO_BE_DONE", "300")))
    options = parser.parse_args()
    pl.seed_everything(1)
    tokens = (torch.randint(VOCABULARY, (4096, 1)) + torch.arange(CONTEXT + 1)).remainder(VOCABULARY)
    data = TensorDataset(tokens)
    devices = max(1, int(os.environ.get("NUM_GPUS", "1")))
    callback = SwellCallback(save_every=100)  # Swell: 1
    loader = DataLoader(data, batch_sampler=callback.batches(len(data), BATCH))  # Swell: 2, in place of `batch_size`
    trainer = pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_steps=options.steps,
        callbacks=[callback],  # Swell: 3
        use_distributed_sampler=False,  # Swell: 4, each rank is given its samples already
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Transformer()
    trainer.fit(model, loader, ckpt_path=callback.resume_from())  # Swell: 5
    if trainer.is_global_zero:
        with torch.no_grad():
            print(f"final loss {model.loss(tokens):.6f} steps {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main()
