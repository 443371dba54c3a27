"""The training that each demo job runs: `python -m swell.demo.trainer --width 64 --seed 1 --epochs 12`.

The network, its gradients, checkpoints and losses are real. A slot of the demo is not a GPU, so each step also waits
for as long as a GPU would compute: `--slot-seconds` an epoch on one slot, half of it on two.
"""

from __future__ import annotations

import argparse
import time

import swell
from swell.demo import model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--slot-seconds", type=float, default=1.0)
    options = parser.parse_args()
    inputs, targets = model.data(options.seed)
    with swell.training(epochs=options.epochs) as run:
        weights = run.load() or model.initial(options.width, options.seed)
        slots = max(1, run.gpus)
        pause_s = options.slot_seconds / model.STEPS_PER_EPOCH / slots
        for epoch in run.epochs():
            losses = []
            for number in run.steps(range(model.STEPS_PER_EPOCH)):
                weights, loss = model.step(weights, inputs, targets, number)
                losses.append(loss)
                time.sleep(pause_s)
            mean = sum(losses) / len(losses)
            run.log(loss=mean)
            print(f"epoch {epoch} loss {mean!r} on {slots} slots", flush=True)
            run.save(weights)


if __name__ == "__main__":
    main()
