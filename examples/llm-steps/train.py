"""A GPT trained as nanoGPT does it: one long loop over steps, gradient accumulation, a checkpoint now and then, DDP if
RANK is set. The import and five more lines are there for Swell; they are marked.

By hand: `python train.py`, or `torchrun --nproc-per-node=2 train.py`.
"""

import argparse
import math
import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import swell  # Swell
import torch
from torch import nn

VOCABULARY, CONTEXT, WIDTH = 64, 16, 32
BATCH = 24  # sequences per step, over all GPUs: a resize changes the speed and nothing else
MICRO_BATCH = 4  # sequences on one GPU at once


class Block(nn.Module):  # type: ignore[misc]  # torch is not there when this is checked
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        y = self.norm_1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.block, self.head = Block(), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.block(self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))))
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def rate(step: int, steps: int) -> float:
    return 3e-3 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))


def get_batch(step: int, samples: int) -> list[int]:
    """Sequences of a step: drawn at random as in nanoGPT, the same ones whatever the number of GPUs."""
    found: list[int] = torch.randint(samples, (BATCH,), generator=torch.Generator().manual_seed(step)).tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1337)
    data = (torch.randint(VOCABULARY, (960, 1)) + torch.arange(CONTEXT + 1)).remainder(VOCABULARY).to(device)
    model = Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    run = swell.training(steps=options.steps, save_every=100)  # Swell: 1
    state = run.load()  # Swell: 2, the last checkpoint or None
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    ddp = DistributedDataParallel(model) if dist.is_initialized() else model
    for step in run.loop():  # Swell: 3, the steps that are left
        for group in optimizer.param_groups:
            group["lr"] = rate(step, options.steps)
        mine = get_batch(step, len(data))[rank::world]
        parts = [mine[i : i + MICRO_BATCH] for i in range(0, len(mine), MICRO_BATCH)]
        for number, part in enumerate(parts):
            if isinstance(ddp, DistributedDataParallel):
                ddp.require_backward_grad_sync = number == len(parts) - 1
            loss = ddp(data[part, :-1], data[part, 1:]) * len(part) * world / BATCH
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if run.checkpoint_due():  # Swell: 4, every 100 steps, and wherever the run is to stop
            run.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, background=True)  # Swell: 5
    with torch.no_grad():
        final = model(data[:, :-1], data[:, 1:]).item()
    if rank == 0:
        print(f"final loss {final:.6f} steps {run.step}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
