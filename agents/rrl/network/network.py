"""A small multilayer perceptron as plain arrays: drawn, evaluated and checked without torch.

The control loop evaluates it in every window and must stay light; torch only trains it
(:mod:`tuner.agents.rrl.network.estimator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

__all__ = ["Weights", "forward", "frozen", "initial_weights", "layer_shapes"]

Weights = tuple[np.ndarray, ...]
"""W1, b1, W2, b2, ...: matrices are (inputs, outputs), biases (outputs,), all float32, read-only."""


def layer_shapes(inputs: int, hidden: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shape of every array of a network with one output."""
    widths = [inputs, *hidden, 1]
    return [shape for fan_in, fan_out in pairwise(widths) for shape in ((fan_in, fan_out), (fan_out,))]


def initial_weights(inputs: int, hidden: Sequence[int], generator: np.random.Generator) -> Weights:
    """Draw weights as He et al. advise for ReLU; the output layer is 0, so the network predicts 0."""
    shapes = layer_shapes(inputs, hidden)
    arrays = []
    for shape in shapes:
        if len(shape) == 2:
            arrays.append(generator.normal(0.0, np.sqrt(2.0 / shape[0]), shape))
        else:
            # spread the kinks over the inputs' range 0..1: with biases of 0 all would sit at the origin
            arrays.append(generator.uniform(-0.5, 0.5, shape))
    arrays[-2:] = [np.zeros(shapes[-2]), np.zeros(shapes[-1])]
    return frozen(arrays)


def frozen(arrays: Sequence[np.ndarray]) -> Weights:
    """Return the arrays as float32 that nobody can change."""
    weights = tuple(np.array(array, dtype=np.float32) for array in arrays)
    for array in weights:
        array.setflags(write=False)
    return weights


def forward(weights: Weights, features: np.ndarray) -> np.ndarray:
    """Evaluate the network: ReLU between layers, linear output.

    Args:
        weights: Of any number of layers.
        features: One row per point.   # (n, inputs) float32

    Returns:
        The outputs.   # (n,) float64
    """
    values = features
    for i in range(0, len(weights) - 2, 2):
        values = np.maximum(values @ weights[i] + weights[i + 1], 0.0)
    return np.asarray((values @ weights[-2] + weights[-1])[:, 0], dtype=np.float64)
