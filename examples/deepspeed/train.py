"""DeepSpeed with ZeRO, elastic with Swell: the import and seven more lines, marked.

ZeRO divides the optimizer's state over the ranks, and DeepSpeed loads its files on the same number of ranks only: the
job file fixes the number of GPUs, and the job can be preempted and moved. With `--stage 0` (no ZeRO) it can be resized,
too (`gpus: 1-2`). By hand: `torchrun --nproc-per-node=2 train.py`.
"""

import argparse
import os

import deepspeed
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

import swell  # Swell
import torch
from torch import nn

BATCH = 24  # samples per step, over all GPUs: divisible by every number of GPUs that the job file allows


def config(stage: int, world_size: int) -> dict[str, object]:
    return {
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": BATCH // world_size,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 10_000,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--stage", type=int, default=2)
    options = parser.parse_args()
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    os.environ.setdefault("LOCAL_RANK", os.environ["RANK"])
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(1)
    inputs = torch.randn(960, 8)
    data = TensorDataset(inputs, (inputs @ torch.randn(8, 1)).tanh() + 0.3 * torch.randn(960, 1))
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config(options.stage, dist.get_world_size())
    )

    run = swell.training(steps=options.steps, save_every=50)  # Swell: 1
    engine.load_checkpoint(run.checkpoint_dir)
    run.continue_at(engine.global_steps)  # Swell: 2
    run.samples_done = engine.global_samples  # Swell: 3
    loader = iter(DataLoader(data, batch_sampler=run.batches(len(data), BATCH)))  # Swell: 4, this rank's samples
    for _ in run.loop():  # Swell: 5
        x, y = (part.to(engine.device) for part in next(loader))
        engine.backward(nn.functional.mse_loss(engine(x), y))
        engine.step()
        if run.checkpoint_due():  # Swell: 6, in place of `step % 50 == 0`
            engine.save_checkpoint(run.checkpoint_dir)
            run.saved()  # Swell: 7
    with torch.no_grad():
        final = nn.functional.mse_loss(engine(inputs.to(engine.device)).cpu(), data.tensors[1]).item()
    if dist.get_rank() == 0:
        print(f"final loss {final:.6f} steps {run.step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
