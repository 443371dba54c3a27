"""Keras with Swell: three lines are there for it. By hand: `python train.py --epochs 3`."""

import argparse
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np

from swell.sdk.integrations.keras import SwellCallback  # Swell


class Tell(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        print(f"epoch {epoch} loss {logs['loss']:.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS_TO_BE_DONE", "5")))
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(1).normal(size=(640, 8)).astype("float32")
    y = np.tanh(x.sum(axis=1, keepdims=True))
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    swell_callback = SwellCallback()  # Swell
    swell_callback.restore(model)  # Swell
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=options.epochs,
        initial_epoch=swell_callback.initial_epoch,
        shuffle=False,  # the same order in every attempt, so that a stop changes nothing
        verbose=0,
        callbacks=[Tell(), swell_callback],  # Swell
    )


if __name__ == "__main__":
    main()
