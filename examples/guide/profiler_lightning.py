"""The submission guide's Lightning script, adapted (marked): no torchvision, no data set, no GPU on small machines."""

import lightning.pytorch as pl  # adapted: `pytorch_lightning` is its old name
import torch
import torch.nn.functional as F
from kubernetesdlprofile import kubeprofiler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class TestNN(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10), nn.LogSoftmax(dim=1))  # adapted: mobilenet
        self.prof = kubeprofiler.KubeProfiler()

    def forward(self, x):
        out = self.model(x)
        return out

    def training_step(self, batch, batch_idx):
        x, y = batch
        x_hat = self.model(x)
        loss = F.nll_loss(x_hat, y)
        self.log("train_loss", loss)
        self.prof.measure()
        return loss

    def on_train_epoch_start(self):
        self.prof.start_epoch()

    def on_train_epoch_end(self):
        self.prof.end_epoch()
        print("done", self.prof.epoch, flush=True)  # adapted: so that a test can follow

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return optimizer


if __name__ == "__main__":
    dataset = TensorDataset(torch.randn(400, 3, 8, 8), torch.randint(10, (400,)))  # adapted: CIFAR10
    nn_ = TestNN()
    train, val = random_split(dataset, [nn_.prof.TRAINING_SET_SIZE, len(dataset) - nn_.prof.TRAINING_SET_SIZE])
    loader = DataLoader(train, batch_size=nn_.prof.BATCH_SIZE, drop_last=True)
    gpu = torch.cuda.is_available()
    trainer = pl.Trainer(
        accelerator="gpu" if gpu else "cpu",  # adapted
        devices=max(1, nn_.prof.NUM_GPUS),
        num_nodes=nn_.prof.NUM_NODES,
        strategy="ddp",
        max_epochs=nn_.prof.EPOCHS,
        profiler="simple",
        default_root_dir=nn_.prof.root_dir,
        enable_progress_bar=False,
    )
    if not nn_.prof.RESTARTED:
        trainer.fit(nn_, loader)
    else:
        trainer.fit(nn_, loader, ckpt_path=nn_.prof.ckpt_path)
