"""A training loop with Accelerate, counted in steps: the import and six more lines are there for Swell, marked.

By hand: `python train.py`, or `accelerate launch train.py`.
"""

import argparse

from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import swell  # Swell
import torch
from torch import nn

BATCH = 24  # samples per step, over all GPUs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(1)
    x = torch.randn(960, 8)
    data = TensorDataset(x, (x @ torch.randn(8, 1)).tanh() + 0.3 * torch.randn(960, 1))
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = swell.training(steps=options.steps, save_every=100)  # Swell: 1
    model, optimizer = accelerator.prepare(model, optimizer)
    state = run.load()  # Swell: 2
    if state is not None:
        accelerator.unwrap_model(model).load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    loader = iter(DataLoader(data, batch_sampler=run.batches(len(data), BATCH)))  # Swell: 3, this rank's samples
    for _ in run.loop():  # Swell: 4
        inputs, targets = (part.to(accelerator.device) for part in next(loader))
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if run.checkpoint_due():  # Swell: 5, in place of `step % 100 == 0`
            weights = accelerator.unwrap_model(model).state_dict()
            run.save({"model": weights, "optimizer": optimizer.state_dict()})  # Swell: 6
    with torch.no_grad():
        final = nn.functional.mse_loss(accelerator.unwrap_model(model)(x.to(accelerator.device)).cpu(), data.tensors[1])
    accelerator.print(f"final loss {final:.6f} steps {run.step}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
