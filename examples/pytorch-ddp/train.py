"""Elastic PyTorch DDP. Swell starts one process per GPU (launcher: per-gpu) and resizes the run between epochs.

The global batch stays the same whatever the number of workers, so that a resize changes the speed and nothing else.
Each worker computes the loss of its own part of the batch; the loss of the epoch is the mean over all of them.
Lines that are there for Swell are marked. By hand: `python train.py --epochs 3`.
"""

import argparse
import os
import time

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import swell  # Swell
import torch
from torch import nn

GLOBAL_BATCH = 60  # divisible by every number of workers that the job file allows
SAMPLES = 1200
STEPS = SAMPLES // GLOBAL_BATCH  # of an epoch


def make_data() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 20, dtype=torch.float64, generator=generator)
    teacher = torch.randn(20, 1, dtype=torch.float64, generator=generator)
    return torch.cat([inputs, torch.tanh(inputs @ teacher)], dim=1)


def batches(epoch: int) -> torch.Tensor:
    """The same order in every attempt: it depends on the epoch and on nothing else."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1000 + epoch))
    return order.view(-1, GLOBAL_BATCH)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.0, help="after each step, to have time to watch")
    parser.add_argument("--weights", default="", help="write the final weights here")
    options = parser.parse_args()

    run = swell.training(epochs=options.epochs)  # Swell
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1)).double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    saved = run.load()  # Swell
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    ddp = DistributedDataParallel(model)
    data = make_data().to(device)

    with run:
        for epoch in run.epochs():  # Swell: the epochs that are left; ends the process when the run is to stop
            total = torch.zeros((), dtype=torch.float64, device=device)
            for batch in run.steps(batches(epoch)):  # Swell: measures the steps
                mine = data[batch.chunk(run.world_size)[run.rank]]
                loss = nn.functional.mse_loss(ddp(mine[:, :20]), mine[:, 20:])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
                time.sleep(options.pause_s)
            dist.all_reduce(total)
            mean = total.item() / STEPS / run.world_size
            run.log(loss=mean)  # Swell
            run.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})  # Swell
            if run.rank == 0:
                print(f"epoch {epoch} loss {mean:.6f} workers {run.world_size}", flush=True)
    if options.weights and run.rank == 0:
        torch.save(model.state_dict(), options.weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
