"""PyTorch FSDP2 with sharded checkpoints, elastic with Swell: the import and six more lines, marked.

Weights and optimizer are divided over the ranks. Each rank writes its part beside the training; PyTorch divides them
anew when they are loaded on another number of ranks. By hand: `torchrun --nproc-per-node=2 train.py`.
"""

import argparse
import os

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import swell  # Swell
import torch
from swell.sdk.integrations.dcp import ShardedCheckpoints  # Swell
from torch import nn

BATCH = 24  # samples per step, over all GPUs: divisible by every number of GPUs that the job file allows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("cuda:nccl,cpu:gloo" if device == "cuda" else "gloo")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(1)
    inputs = torch.randn(960, 8)
    data = TensorDataset(inputs, (inputs @ torch.randn(8, 1)).tanh() + 0.3 * torch.randn(960, 1))
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    run = swell.training(steps=options.steps, save_every=50)  # Swell: 1
    checkpoints = ShardedCheckpoints(run, model, optimizer)  # Swell: 2
    checkpoints.load()  # Swell: 3
    loader = iter(DataLoader(data, batch_sampler=run.batches(len(data), BATCH)))  # Swell: 4, this rank's samples
    for _ in run.loop():  # Swell: 5
        x, y = (part.to(device) for part in next(loader))
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if run.checkpoint_due():  # Swell: 6, in place of `step % 50 == 0`
            checkpoints.save()
    with torch.no_grad():
        final = nn.functional.mse_loss(model(inputs.to(device)).cpu(), data.tensors[1]).item()
    if dist.get_rank() == 0:
        print(f"final loss {final:.6f} steps {run.step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
