"""A small real network with real gradients, the same to the last bit whatever the number of slots.

A teacher network makes the data; a student with one hidden layer learns it by gradient descent with momentum. The
gradient is the sum over micro-shards in a fixed order, so that 1, 2 or 4 slots (which only share the micro-shards out)
give exactly the same losses: that is what lets the demo check that nothing was lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MICRO_SHARDS = 8
STEPS_PER_EPOCH = 20
SAMPLES = 2048
INPUTS = 16


@dataclass(frozen=True, slots=True)
class Weights:
    """What is saved at the end of each epoch: weights and momentum."""

    hidden: Array
    out: Array
    hidden_momentum: Array
    out_momentum: Array


def initial(width: int, seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(0, 0.5, (INPUTS, width))
    out = rng.normal(0, 0.5, (width, 1))
    return Weights(hidden, out, np.zeros_like(hidden), np.zeros_like(out))


def data(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed + 1_000)
    inputs = rng.normal(0, 1, (SAMPLES, INPUTS))
    teacher = rng.normal(0, 1, (INPUTS, 4))
    targets = np.tanh(inputs @ teacher).sum(axis=1, keepdims=True)
    return inputs, targets


def step(weights: Weights, inputs: Array, targets: Array, number: int) -> tuple[Weights, float]:
    """One step of gradient descent on mini-batch `number`; returns the new weights and the batch's loss."""
    size = SAMPLES // STEPS_PER_EPOCH
    batch = slice(number * size, (number + 1) * size)
    hidden_gradient = np.zeros_like(weights.hidden)
    out_gradient = np.zeros_like(weights.out)
    loss = 0.0
    for x, y in zip(
        np.array_split(inputs[batch], MICRO_SHARDS), np.array_split(targets[batch], MICRO_SHARDS), strict=True
    ):
        activation = np.tanh(x @ weights.hidden)
        error = activation @ weights.out - y
        loss += float((error**2).sum())
        out_gradient += activation.T @ error
        hidden_gradient += x.T @ ((error @ weights.out.T) * (1 - activation**2))
    rate, keep = 0.02 / size, 0.9
    hidden_momentum = keep * weights.hidden_momentum - rate * hidden_gradient
    out_momentum = keep * weights.out_momentum - rate * out_gradient
    new = Weights(weights.hidden + hidden_momentum, weights.out + out_momentum, hidden_momentum, out_momentum)
    return new, loss / size


def reference(width: int, seed: int, epochs: int) -> list[float]:
    """Losses by epoch of an uninterrupted training."""
    weights, (inputs, targets) = initial(width, seed), data(seed)
    losses = []
    for _ in range(epochs):
        epoch_losses = []
        for number in range(STEPS_PER_EPOCH):
            weights, loss = step(weights, inputs, targets, number)
            epoch_losses.append(loss)
        losses.append(sum(epoch_losses) / STEPS_PER_EPOCH)
    return losses
