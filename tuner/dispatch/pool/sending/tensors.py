"""Puts the inputs of several requests into one batch, and takes the outputs apart again.

The values of a tensor are in row-major order, so the items of a batch, which are its first dimension, lie one
after the other: a batch is the concatenation of its requests' bytes. That holds for BYTES, too, where each
element follows its length; only there an item's end has to be searched for.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from tuner.dispatch.request import Refused, Request, Status, Tensor

__all__ = ["WIDTHS", "Indivisible", "count_items", "kind_of", "merge", "split"]

WIDTHS = {
    "BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2,
    "UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8,
}  # fmt: skip
"""Bytes of a value, by data type; those of BYTES differ."""
PREFIX = 4
"""Bytes of the length before an element of BYTES."""


class Indivisible(Refused):
    """The outputs of a batch cannot be taken apart, although its server has executed it."""


def count_items(inputs: Sequence[Tensor]) -> int:
    """Return how many items a request has: the first dimension, which its inputs share.

    Raises:
        Refused: They do not share it, or it has no item.
    """
    counts = {tensor.shape[0] if tensor.shape else 0 for tensor in inputs}
    if len(counts) != 1 or (count := counts.pop()) < 1:
        shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in inputs)
        problem = f"the inputs' first dimension must be the number of items, at least 1: {shapes or 'none'}"
        raise Refused(Status.INVALID, problem)
    return count


def kind_of(request: Request) -> Hashable:
    """Return what requests of one batch have in common: all but the number of items and the values."""
    inputs = sorted((tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in request.inputs)
    if not (request.outputs or request.version or request.parameters):
        return tuple(inputs)
    parameters = sorted((name, type(value).__name__, value) for name, value in request.parameters.items())
    return (*inputs, request.outputs, request.version, *parameters)


def merge(requests: Sequence[Request]) -> tuple[Tensor, ...]:
    """Return the inputs of a batch of requests of one kind."""
    first = requests[0]
    if len(requests) == 1:
        return first.inputs
    found = [{tensor.name: tensor for tensor in request.inputs} for request in requests]
    return tuple(_joined([inputs[tensor.name] for inputs in found]) for tensor in first.inputs)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    first = parts[0]
    items = sum(part.shape[0] for part in parts)
    content = b"".join([part.content for part in parts])
    return Tensor(first.name, first.datatype, (items, *first.shape[1:]), content)


def split(outputs: Sequence[Tensor], counts: Sequence[int]) -> list[tuple[Tensor, ...]]:
    """Return the outputs of a batch by request.

    Args:
        outputs: Of the batch.
        counts: Items of each request.

    Raises:
        Indivisible: An output does not have an item for each of the batch, or its values do not fill its
            shape.
    """
    if len(counts) == 1:
        return [tuple(outputs)]
    columns = [_pieces(output, counts) for output in outputs]
    return [tuple(column[place] for column in columns) for place in range(len(counts))]


def _pieces(output: Tensor, counts: Sequence[int]) -> list[Tensor]:
    if not output.shape or output.shape[0] != sum(counts):
        problem = f"output {output.name} does not have a row for each item of a batch"
        raise Indivisible(Status.INTERNAL, problem)
    ends = _ends(output, counts)
    pieces, begin = [], 0
    for count, end in zip(counts, ends, strict=True):
        shape = (count, *output.shape[1:])
        pieces.append(Tensor(output.name, output.datatype, shape, output.content[begin:end]))
        begin = end
    return pieces


def _ends(output: Tensor, counts: Sequence[int]) -> list[int]:
    """Return where each request's values end, in bytes."""
    width = WIDTHS.get(output.datatype)
    elements = math.prod(output.shape[1:])
    content, at = output.content, 0
    if width is None and sum(counts) * elements * PREFIX > len(content):  # to look for them may take days
        raise _odd(output)
    ends = []
    for count in counts:
        if width is not None:
            at += count * elements * width
        else:
            for _ in range(count * elements):
                at += PREFIX + int.from_bytes(content[at : at + PREFIX], "little")
        ends.append(at)
    if at != len(content):
        raise _odd(output)
    return ends


def _odd(output: Tensor) -> Indivisible:
    return Indivisible(Status.INTERNAL, f"output {output.name} has other bytes than its shape asks for")
