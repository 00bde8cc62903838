"""Builds the networks that the embedded server serves: ``python -m ... MODEL FOLDER`` writes a SavedModel.

They are the same computations as those the embedded Triton serves: ``mlp`` reads 82 MB of weights per
execution and is bound by memory at batch 1, so that batching pays much; ``cnn`` is bound by arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["NETWORKS"]


class ServedNetwork(tf.Module):  # type: ignore[misc, unused-ignore]
    """A network with random weights.

    Args:
        shape: Of one input row.
        weights: In order.
        compute: Takes the input and the weights.
    """

    def __init__(self, shape: Sequence[int], weights: list[np.ndarray], compute: Any) -> None:
        super().__init__()
        self.weights = [tf.Variable(array) for array in weights]
        spec = tf.TensorSpec([None, *shape], tf.float32, name="input")

        def serve(rows: Any) -> dict[str, Any]:
            return {"output": compute(rows, self.weights)}

        self.serve = tf.function(serve, input_signature=[spec])


def mlp(widths: Sequence[int] = (256, 3072, 3072, 3072, 256)) -> ServedNetwork:
    """Return a fully connected network, ``(b, widths[0]) -> (b, widths[-1])``."""
    generator = np.random.default_rng(0)
    weights = [_weights(generator, (inputs, outputs), inputs) for inputs, outputs in pairwise(widths)]

    def compute(rows: Any, weights: list[Any]) -> Any:
        for matrix in weights[:-1]:
            rows = tf.nn.relu(tf.linalg.matmul(rows, matrix))
        return tf.linalg.matmul(rows, weights[-1])

    return ServedNetwork([widths[0]], weights, compute)


def cnn(channels: Sequence[int] = (64, 64, 128, 128, 256), classes: int = 10) -> ServedNetwork:
    """Return a small image classifier, ``(b, 32, 32, 3) -> (b, classes)``."""
    generator = np.random.default_rng(0)
    weights = [
        _weights(generator, (3, 3, inputs, outputs), 9 * inputs)
        for inputs, outputs in pairwise([3, *channels])
    ]
    weights.append(_weights(generator, (channels[-1], classes), channels[-1]))

    def compute(rows: Any, weights: list[Any]) -> Any:
        for layer, kernel in enumerate(weights[:-1]):
            rows = tf.nn.relu(tf.nn.conv2d(rows, kernel, strides=1, padding="SAME"))
            if layer % 2 == 1:
                rows = tf.nn.max_pool2d(rows, ksize=2, strides=2, padding="SAME")
        return tf.linalg.matmul(tf.reduce_mean(rows, axis=[1, 2]), weights[-1])

    return ServedNetwork([32, 32, 3], weights, compute)


NETWORKS: dict[str, Callable[[], ServedNetwork]] = {"cnn": cnn, "mlp": mlp}
"""Builder of each model that can be embedded, by name."""


def _weights(generator: np.random.Generator, shape: Sequence[int], fan_in: int) -> np.ndarray:
    return generator.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / fan_in))


def main(model: str, folder: str) -> None:
    """Write a model."""
    network = NETWORKS[model]()
    tf.saved_model.save(network, folder, signatures={"serving_default": network.serve})


if __name__ == "__main__":
    main(*sys.argv[1:])
