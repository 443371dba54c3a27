"""In the shape of PyTorch's mnist example: train and test for each epoch, Adadelta, StepLR; one process.

Lines that are there for Swell are marked, beside the import.
"""

import argparse

from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

import swell  # Swell
import torch
from torch import nn


class Net(nn.Module):  # type: ignore[misc]  # torch is not there when this is checked
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv(x)), 2)
        return nn.functional.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def digits(samples: int) -> TensorDataset:
    """Stand in for MNIST: each class is a picture of its own, with noise."""
    pictures, labels = torch.randn(10, 1, 8, 8), torch.arange(samples) % 10
    return TensorDataset(pictures[labels] + torch.randn(samples, 1, 8, 8), labels)


def train(model: Net, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        nn.functional.nll_loss(model(data), target).backward()
        optimizer.step()


def test(model: Net, data: TensorDataset) -> float:
    model.eval()
    with torch.no_grad():
        return float(nn.functional.nll_loss(model(data.tensors[0]), data.tensors[1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=14)
    args = parser.parse_args()
    torch.manual_seed(1)
    data = digits(320)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.99)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    run = swell.training(epochs=args.epochs)  # Swell: 1
    for name, part in (run.load() or {}).items():  # Swell: 2
        parts[name].load_state_dict(part)  # Swell: 3
    for epoch in run.epochs():  # Swell: 4, in place of `range(1, args.epochs + 1)`
        order = torch.Generator().manual_seed(epoch)
        train(model, DataLoader(data, batch_size=64, shuffle=True, generator=order), optimizer)
        scheduler.step()
        run.save({name: part.state_dict() for name, part in parts.items()})  # Swell: 5
    print(f"final loss {test(model, data):.6f} epochs {args.epochs}", flush=True)


if __name__ == "__main__":
    main()
