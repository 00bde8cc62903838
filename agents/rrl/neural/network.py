"""The network: layers of ReLU and a linear output, evaluated in numpy; its weights come with the package.

No torch: a daemon decides in every window and must stay light.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.agents.rrl.neural.inputs import INPUTS
from tuner.errors import StorageError

__all__ = [
    "DATA_SHEET",
    "FACTORS",
    "LARGEST_LOGARITHM",
    "LEAST_DEVIATION",
    "OUTPUTS",
    "WEIGHTS",
    "WIDTH",
    "Network",
    "digest_of",
    "evaluate",
    "shipped",
    "shipped_sheet",
]

WEIGHTS = Path(__file__).with_name("weights.npz")
DATA_SHEET = Path(__file__).with_name("weights.json")
"""What the weights were trained on, what they are worth, and their digest."""
OUTPUTS = 6
"""Mean, p50, p95, p99 of the latency, CPU use, GPU use."""
FACTORS = 6
"""Ways in which servers that look alike may differ, of each output."""
WIDTH = OUTPUTS * (2 + FACTORS)
"""Outputs of the last layer: means, logarithms of the deviations of each configuration alone, loadings."""
LEAST_DEVIATION, LARGEST_LOGARITHM = 0.02, 1.0
"""Of the deviations. The least is added to each in squares, not a bound at which it is cut off: below such a
bound the loss would not change, and training could not raise a deviation again."""


class Network(NamedTuple):
    """The weights. Inputs are centred and scaled, and clipped where they leave the range of the training."""

    centre: np.ndarray  # (INPUTS,)
    scale: np.ndarray  # (INPUTS,)
    low: np.ndarray  # (INPUTS,) least scaled input in training
    high: np.ndarray  # (INPUTS,)
    layers: tuple[np.ndarray, ...]  # W1, b1, W2, b2, ...: (inputs, outputs), (outputs,)


class Outputs(NamedTuple):
    """What the network says of each row, relative to the formulas.

    The logarithms of all configurations of a server are jointly normal: ``mean + loadings @ z + deviation *
    e``, with standard normal ``z``, common to the configurations of the server, and ``e``, of each alone.
    """

    mean: np.ndarray  # (n, OUTPUTS)
    deviation: np.ndarray  # (n, OUTPUTS) of each configuration alone
    loadings: np.ndarray  # (n, OUTPUTS, FACTORS)
    beyond: np.ndarray  # (n, INPUTS) how far inputs lie beyond those of the training, in their deviations


def evaluate(network: Network, rows: np.ndarray) -> Outputs:
    """Evaluate the network.

    Args:
        network: The weights.
        rows: Inputs.   # (n, INPUTS) float32
    """
    scaled = (rows - network.centre) / network.scale
    values = np.clip(scaled, network.low, network.high)
    beyond = np.abs(scaled - values)
    for i in range(0, len(network.layers) - 2, 2):
        values = np.maximum(values @ network.layers[i] + network.layers[i + 1], 0.0)
    values = np.asarray(values @ network.layers[-2] + network.layers[-1], np.float64)
    logarithm = np.minimum(values[:, OUTPUTS : 2 * OUTPUTS], LARGEST_LOGARITHM)
    deviation = np.hypot(np.exp(logarithm), LEAST_DEVIATION)
    loadings = values[:, 2 * OUTPUTS :].reshape(-1, OUTPUTS, FACTORS)
    return Outputs(values[:, :OUTPUTS], deviation, loadings, beyond)


@cache
def shipped() -> Network:
    """Return the weights that come with the package.

    Raises:
        StorageError: They are damaged: their digest is not that of the data sheet.
    """
    if digest_of(WEIGHTS) != shipped_sheet()["sha256"]:
        raise StorageError(
            f"{WEIGHTS} is damaged: its digest differs from its data sheet's; install servetune again"
        )
    with np.load(WEIGHTS, allow_pickle=False) as arrays:
        layers = tuple(arrays[f"layer{i}"] for i in range(len(arrays.files) - 4))
        network = Network(arrays["centre"], arrays["scale"], arrays["low"], arrays["high"], layers)
    if network.centre.shape != (INPUTS,) or layers[-1].shape != (WIDTH,):
        raise StorageError(
            f"{WEIGHTS} is of another version: train it again with `tuner experiment run neural-pretrain`"
        )
    return network


@cache
def shipped_sheet() -> Mapping[str, Any]:
    """Return the data sheet of the weights."""
    return dict(json.loads(DATA_SHEET.read_text()))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
