"""In the shape of PyTorch's ddp-tutorial series (`multigpu_torchrun.py`): a Trainer that goes on from its snapshots.

Lines that are there for Swell are marked, beside the import.
"""

import argparse
import os
from pathlib import Path

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import swell  # Swell
import torch
from torch import nn


class Trainer:
    def __init__(
        self, model: nn.Module, data: TensorDataset, optimizer: torch.optim.Optimizer, batch_size: int
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.run = swell.training()  # Swell: 1
        self.snapshot_path = self.run.checkpoint_dir / "snapshot.pt"  # Swell: 2, survives attempts
        if os.path.exists(self.snapshot_path):
            self._load_snapshot()
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=batch_size // dist.get_world_size(), sampler=self.sampler)
        self.ddp = DDP(model)

    def _load_snapshot(self) -> None:
        snapshot = torch.load(self.snapshot_path)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.run.continue_at(snapshot["EPOCHS_RUN"])  # Swell: 3

    def _save_snapshot(self, epoch: int) -> None:
        states = {"MODEL_STATE": self.model.state_dict(), "OPTIMIZER_STATE": self.optimizer.state_dict()}
        beside = Path(f"{self.snapshot_path}.new")
        torch.save({**states, "EPOCHS_RUN": epoch + 1}, beside)
        beside.replace(self.snapshot_path)

    def _run_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)
        for source, targets in self.loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.ddp(source), targets).backward()
            self.optimizer.step()

    def train(self, max_epochs: int) -> None:
        for epoch in self.run.epochs(max_epochs):  # Swell: 4, in place of `range(self.epochs_run, max_epochs)`
            self._run_epoch(epoch)
            if dist.get_rank() == 0:  # Swell: 5, without `epoch % save_every`: an epoch counts once it is saved
                self._save_snapshot(epoch)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    inputs = torch.rand(320, 20)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 1))
    Trainer(model, data, torch.optim.SGD(model.parameters(), lr=1e-2), args.batch_size).train(args.epochs)
    with torch.no_grad():
        final = nn.functional.mse_loss(model(inputs), data.tensors[1]).item()
    if dist.get_rank() == 0:
        print(f"final loss {final:.6f} epochs {args.epochs}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
