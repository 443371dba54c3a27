"""In the shape of PyTorch's imagenet example: `--resume` from checkpoint.pth.tar, which each epoch writes; DDP if the
environment says so, with the batch divided over the processes; SGD with momentum, StepLR.

Lines that are there for Swell are marked, beside the import.
"""

import argparse
import os
from pathlib import Path

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import swell  # Swell
import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("-b", "--batch-size", type=int, default=32, help="of all processes together")
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    world, rank = (dist.get_world_size(), dist.get_rank()) if distributed else (1, 0)
    torch.manual_seed(1)
    inputs = torch.randn(320, 12)
    data = TensorDataset(inputs, (inputs @ torch.randn(12, 5)).argmax(dim=1))
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.5)
    run = swell.training(epochs=args.epochs)  # Swell: 1
    args.resume = args.resume or str(run.checkpoint_dir / "checkpoint.pth.tar")  # Swell: 2, survives attempts
    if os.path.isfile(args.resume):
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        run.continue_at(checkpoint["epoch"])  # Swell: 3
    ddp = DistributedDataParallel(model) if distributed else model
    sampler = DistributedSampler(data, world, rank, shuffle=True)
    loader = DataLoader(data, batch_size=args.batch_size // world, sampler=sampler)
    for epoch in run.epochs():  # Swell: 4, in place of `range(args.start_epoch, args.epochs)`
        sampler.set_epoch(epoch)
        for images, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(images), target).backward()
            optimizer.step()
        scheduler.step()
        if rank == 0:
            state = {"epoch": epoch + 1, "state_dict": model.state_dict()}
            state |= {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
            torch.save(state, f"{args.resume}.new")
            Path(f"{args.resume}.new").replace(args.resume)
    with torch.no_grad():
        final = nn.functional.cross_entropy(model(inputs), data.tensors[1]).item()
    if rank == 0:
        print(f"final loss {final:.6f} epochs {args.epochs}", flush=True)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
