"""Elastic Horovod: the running job grows and shrinks in place, surviving workers keep their processes.

Swell rewrites the host discovery script that horovodrun asks; nothing is restarted. A stop (a preemption, a pause)
still happens between epochs, agreed by all workers. Lines that are there for Swell are marked.
"""

import argparse
import os
import time

import horovod.torch as hvd

import swell  # Swell
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS_TO_BE_DONE", "10")))
parser.add_argument("--pause-s", type=float, default=0.0)
options = parser.parse_args()

hvd.init()
torch.manual_seed(0)
data = torch.randn(960, 9, generator=torch.Generator().manual_seed(1))
model = nn.Linear(8, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
run = swell.training(epochs=options.epochs)  # Swell
saved = run.load()  # Swell
if saved is not None:
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=run.resume_at)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    run.continue_at(state.epoch, options.epochs)  # Swell
    while state.epoch < options.epochs:
        run.start_epoch()  # Swell
        loss = torch.zeros(())
        for batch in data.view(-1, 96, 9):
            mine = batch.chunk(hvd.size())[hvd.rank()]
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(mine[:, :8]), mine[:, 8:])
            loss.backward()
            optimizer.step()
            run.measure()  # Swell
            time.sleep(options.pause_s)
        run.log(loss=hvd.allreduce(loss.detach(), name="loss"))  # Swell: the mean over all workers
        run.end_epoch()  # Swell
        run.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})  # Swell
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} size {hvd.size()} pid {os.getpid()}", flush=True)
        state.epoch += 1
        state.commit()  # here a change of hosts takes effect


train(state)
run.finish()  # Swell
