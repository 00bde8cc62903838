"""Builds the networks that the embedded server serves: real computations with fixed random weights.

``mlp`` reads 82 MB of weights per execution and is bound by memory at batch 1, so that batching pays
much; ``wide`` reads 143 MB. ``cnn`` is bound by arithmetic, so that batching pays little. ``small`` hardly
works at all. ``deep`` reads 6 GB, work for a GPU: more than its cache holds again and again, as a network
that writes text word by word does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["NETWORKS", "build_cnn", "build_deep", "build_mlp", "build_small"]

OPSET = 17
IR_VERSION = 9  # the newest that all supported onnxruntime versions read


def build_mlp(widths: Sequence[int] = (256, 3072, 3072, 3072, 256)) -> ModelProto:
    """Return a fully connected network, ``(b, widths[0]) -> (b, widths[-1])``."""
    generator = np.random.default_rng(0)
    graph = _Graph()
    last = len(widths) - 2
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        weights = _weights(generator, (inputs, outputs), inputs)
        graph.add("Gemm", [weights, np.zeros(outputs, np.float32)])
        if layer < last:
            graph.add("Relu")
    return graph.model("mlp", [widths[0]], [widths[-1]])


def build_cnn(channels: Sequence[int] = (64, 64, 128, 128, 256), classes: int = 10) -> ModelProto:
    """Return a small image classifier, ``(b, 3, 32, 32) -> (b, classes)``."""
    generator = np.random.default_rng(0)
    graph = _Graph()
    inputs = 3
    for layer, outputs in enumerate(channels):
        weights = _weights(generator, (outputs, inputs, 3, 3), 9 * inputs)
        graph.add("Conv", [weights, np.zeros(outputs, np.float32)], pads=[1, 1, 1, 1])
        graph.add("Relu")
        if layer % 2 == 1:
            graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        inputs = outputs
    graph.add("GlobalAveragePool")
    graph.add("Flatten")
    graph.add("Gemm", [_weights(generator, (inputs, classes), inputs), np.zeros(classes, np.float32)])
    return graph.model("cnn", [3, 32, 32], [classes])


def build_small() -> ModelProto:
    """Return a network that hardly works at all: what a request costs besides is most of its time."""
    return build_mlp((64, 256, 64))


def build_deep(width: int = 4096, layers: int = 96, ends: int = 256) -> ModelProto:
    """Return a network that applies one square layer again and again, ``(b, ends) -> (b, ends)``."""
    generator = np.random.default_rng(0)
    graph = _Graph()
    square = _weights(generator, (width, width), width)
    for weights in (_weights(generator, (ends, width), ends), *[square] * layers):
        graph.add("Gemm", [weights])
        graph.add("Relu")
    graph.add("Gemm", [_weights(generator, (width, ends), width)])
    return graph.model("deep", [ends], [ends])


NETWORKS: dict[str, Callable[[], ModelProto]] = {
    "cnn": build_cnn,
    "deep": build_deep,
    "mlp": build_mlp,
    "small": build_small,
    "wide": partial(build_mlp, (256, 4096, 4096, 4096, 256)),
}
"""Builder of each model that can be embedded, by name."""


def _weights(generator: np.random.Generator, shape: Sequence[int], fan_in: int) -> np.ndarray:
    return generator.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / fan_in))


class _Graph:
    """A chain of operators that grows at its end. The same array twice is one constant of the file."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._names: list[tuple[np.ndarray, str]] = []

    def add(self, operator: str, constants: Sequence[np.ndarray] = (), **attributes: Any) -> None:
        from onnx import helper

        number = len(self.nodes)
        names = [
            self._constant(array, f"{operator}_{number}_{place}") for place, array in enumerate(constants)
        ]
        source = self.nodes[-1].output[0] if self.nodes else "input"
        self.nodes.append(helper.make_node(operator, [source, *names], [f"value_{number}"], **attributes))

    def _constant(self, array: np.ndarray, name: str) -> str:
        from onnx import numpy_helper

        for known, given in self._names:
            if known is array:
                return given
        self._names.append((array, name))
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def model(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> ModelProto:
        from onnx import TensorProto, helper

        self.nodes[-1].output[0] = "output"
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", *inputs])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["rows", *outputs])],
            self.constants,
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
