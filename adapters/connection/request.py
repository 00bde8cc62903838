"""Makes up the data of an inference request from a server's description of its model's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.errors import InvalidInput

__all__ = ["FilledInput", "Input", "filled_inputs", "input_bytes", "input_shape"]

INTEGERS = {
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "BOOL": "u1",
}
FLOATS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
LARGEST = 1 << 28
"""An input of more elements is taken for a mistake in its shape."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input tensor as the server describes it; -1 stands for an open dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class FilledInput(NamedTuple):
    """One row of data for one input tensor."""

    tensor: Input
    shape: list[int]
    content: bytes
    """As the server lays it out in memory; before each text stands its length, in 4 bytes."""


def filled_inputs(
    inputs: Iterable[Input], shapes: Mapping[str, Sequence[int]], generator: np.random.Generator
) -> Iterator[FilledInput]:
    """Yield one row of random data for each input.

    Args:
        inputs: The inputs of a model.
        shapes: Shapes for inputs with open dimensions, without the batch dimension; open ones become 1.
        generator: Of the data.

    Raises:
        InvalidInput: A shape is for no input or does not fit, or a data type is unknown.
    """
    inputs = list(inputs)
    if unknown := set(shapes) - {tensor.name for tensor in inputs}:
        known = ", ".join(tensor.name for tensor in inputs)
        raise InvalidInput(f"shape {min(unknown)}", "the model has no such input", f"its inputs are {known}")
    for tensor in inputs:
        shape = input_shape(tensor, shapes.get(tensor.name))
        yield FilledInput(tensor, shape, input_bytes(tensor, shape, generator))


def input_shape(tensor: Input, wanted: Sequence[int] | None = None) -> list[int]:
    """Return a shape without open dimensions; the first dimension, if open, is the batch of 1.

    Raises:
        InvalidInput: The wanted shape contradicts the model's.
    """
    shape = list(tensor.shape)
    if wanted is not None:
        full = [1, *wanted] if len(wanted) == len(shape) - 1 else list(wanted)
        fits = len(full) == len(shape) and all(
            there in (-1, size) and size > 0 for size, there in zip(full, shape, strict=True)
        )
        if not fits:
            problem = f"{list(wanted)} does not fit the model's {shape}"
            raise InvalidInput(f"shape {tensor.name}", problem, "give all dimensions but the batch")
        shape = full
    shape = [1 if size < 0 else size for size in shape]
    if np.prod(shape, dtype=float) > LARGEST:
        raise InvalidInput(f"shape {tensor.name}", f"{shape} has more than {LARGEST} elements")
    return shape


def input_bytes(tensor: Input, shape: Sequence[int], generator: np.random.Generator) -> bytes:
    """Return random content: floats in 0..1, integers 0 or 1 (valid indices into any table), short texts.

    Raises:
        InvalidInput: The data type is unknown.
    """
    count = int(np.prod(shape))
    if tensor.datatype in FLOATS:
        return generator.random(count).astype(FLOATS[tensor.datatype]).tobytes()
    if tensor.datatype == "BF16":  # the upper half of a float32
        return (generator.random(count).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if tensor.datatype in INTEGERS:
        return generator.integers(0, 2, count).astype(INTEGERS[tensor.datatype]).tobytes()
    if tensor.datatype == "BYTES":  # each text is preceded by its length
        texts = generator.integers(ord("a"), ord("z") + 1, (count, 8)).astype("u1")
        return b"".join((8).to_bytes(4, "little") + text.tobytes() for text in texts)
    known = ", ".join([*INTEGERS, *FLOATS, "BF16", "BYTES"])
    raise InvalidInput(
        f"input {tensor.name}", f"its data type {tensor.datatype} is unknown", f"known: {known}"
    )
