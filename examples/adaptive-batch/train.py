"""PyTorch DDP with an adaptive batch size: the batch grows as the gradient's noise does, the learning rate with it."""

import argparse
import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import swell
import torch
from swell.sdk.adaptive import AdaptiveBatch
from torch import nn

SAMPLES = 4096


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=0)
    options = parser.parse_args()
    run = swell.training(epochs=options.epochs)
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    inputs = torch.randn(SAMPLES, 20)
    targets = inputs @ torch.randn(20, 1) + 2.0 * torch.randn(SAMPLES, 1)  # noisy: large batches pay late in training
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ddp = DistributedDataParallel(model)
    adaptive = AdaptiveBatch(run, ddp, optimizer, batch_size=32, max_batch_size=1024)
    saved = run.load()
    if saved is not None:
        model.load_state_dict(saved["model"])
        adaptive.load_state_dict(saved["adaptive"])
    with run:
        for epoch in run.epochs():
            order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
            loss = torch.zeros(())
            for batch in run.steps(order.split(adaptive.batch_size)):
                mine = batch[run.rank :: run.world_size]
                loss = nn.functional.mse_loss(ddp(inputs[mine]), targets[mine])
                optimizer.zero_grad()
                loss.backward()
                adaptive.step()
            size, rate = adaptive.batch_size, optimizer.param_groups[0]["lr"]
            adaptive.end_epoch()
            last = loss.detach()
            dist.all_reduce(last)  # each worker has the loss of its own part of the batch
            run.log(loss=last / run.world_size)
            run.save({"model": model.state_dict(), "adaptive": adaptive.state_dict()})
            if run.rank == 0:
                print(f"epoch {epoch} batch {size} rate {rate:.4f} goodput {run.goodput:.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
