"""The data types of KServe's protocol, and the values of tensors as bytes.

A tensor's content is row-major and little endian. Each element of ``BYTES`` follows its length in 4 bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from tuner.dispatch.front.intake import Oversize
from tuner.dispatch.request import Refused, Status, Tensor

__all__ = [
    "DTYPES",
    "MOST_DIMENSIONS",
    "MOST_TEXTS",
    "MOST_VALUES",
    "check_values",
    "checked",
    "elements_of",
    "gathered",
    "invalid",
    "join_elements",
    "pack",
    "pack_field",
    "shape_of",
    "split_elements",
    "unpack",
]

DTYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BF16": "<u2",  # the upper half of an FP32
}
"""The data types that have a fixed size, as numpy lays them out."""
SIZES = {name: np.dtype(dtype).itemsize for name, dtype in DTYPES.items()} | {"BYTES": 0}
"""Bytes of an element; those of ``BYTES`` have their own."""
ALLOWED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""The types of values that a kind of numpy's data types is made of."""
MOST_DIMENSIONS = 32
"""Dimensions of a tensor."""
MOST_TEXTS = 100_000
"""Elements of the inputs of ``BYTES`` in a request. Each is looked at, which holds up the other requests."""
MOST_VALUES = 160_000
"""Values of a request or an answer that do not come as raw bytes, for the same reason. An image of 224 by
224 pixels in three colours has 150,528."""
LIMITS = {name: np.iinfo(dtype) for name, dtype in DTYPES.items() if np.dtype(dtype).kind in "iu"}
"""What the integers hold."""
LENGTH = struct.Struct("<I")
Size = TypeVar("Size")


def checked(
    name: str, datatype: str, shape: Sequence[int], content: bytes, most_texts: float = MOST_TEXTS
) -> Tensor:
    """Return a tensor whose content has the size that its shape and data type ask for.

    Args:
        name: Of the tensor.
        datatype: One of KServe's.
        shape: Of the tensor.
        content: Its elements.
        most_texts: Elements that one of ``BYTES`` may have.

    Raises:
        Refused: It has not, or the data type is unknown, or the shape is none.
    """
    size = SIZES.get(datatype)
    if size is None:
        raise invalid(f"input '{name}': there is no data type '{datatype}'; use one of {', '.join(SIZES)}")
    shape = shape_of(name, shape)
    elements = elements_of(name, shape)
    if size:
        if len(content) != elements * size:
            raise invalid(
                f"input '{name}': {datatype} of shape {list(shape)} needs {elements * size} bytes, "
                f"but got {len(content)}"
            )
    elif elements > most_texts:
        raise Oversize(
            f"input '{name}': a tensor of BYTES has at most {most_texts} elements, but got {elements}"
        )
    elif not _holds(content, elements):
        raise invalid(
            f"input '{name}': its content is not {elements} elements of BYTES, each after its length"
        )
    return Tensor(name, datatype, shape, content)


def _holds(content: bytes, elements: int) -> bool:
    """Whether this many elements follow each other in the content, and nothing else."""
    at = 0
    for _ in range(elements):
        if at + LENGTH.size > len(content):
            return False
        at += LENGTH.size + LENGTH.unpack_from(content, at)[0]
    return at == len(content)


def gathered(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the inputs of a request.

    Args:
        tensors: Makes them one by one, so that none is made after too many.

    Raises:
        Refused: Their texts are too many, or one of them is refused.
    """
    found, texts = [], 0
    for tensor in tensors:
        found.append(tensor)
        if tensor.datatype == "BYTES":
            texts += math.prod(tensor.shape)
            if texts > MOST_TEXTS:
                raise Oversize(f"a request has at most {MOST_TEXTS} elements of BYTES")
    return tuple(found)


def check_values(lists: Iterable[Sized], instead: str) -> None:
    """Check how many values there are that do not come as raw bytes.

    Args:
        lists: Have them.
        instead: Where a client should put so many.

    Raises:
        Refused: They are too many.
    """
    if (count := sum(map(len, lists))) > MOST_VALUES:
        raise Oversize(
            f"a request has at most {MOST_VALUES} values in lists, but got {count}; send {instead}"
        )


def shape_of(name: str, shape: Sequence[Size]) -> tuple[Size, ...]:
    """Return a shape that a client names.

    Raises:
        Refused: It has too many dimensions.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise invalid(
            f"input '{name}': a tensor has at most {MOST_DIMENSIONS} dimensions, but got {len(shape)}"
        )
    return tuple(shape)


def elements_of(name: str, shape: tuple[int, ...]) -> int:
    """Return how many elements a shape has.

    Raises:
        Refused: A dimension is negative.
    """
    if shape and min(shape) < 0:
        raise invalid(f"input '{name}': no dimension is negative, but got the shape {list(shape)}")
    return math.prod(shape)


def pack(name: str, datatype: str, values: Sequence[Any]) -> bytes:
    """Return the content of a tensor with these values: numbers, booleans, or ``bytes`` for ``BYTES``.

    Raises:
        Refused: The data type cannot hold them.
    """
    try:
        if datatype == "BYTES":
            return join_elements(values)
        if datatype == "BF16":
            wide = _fitting(values, "<f4").view("<u4")
            # To the nearest, ties to even; a NaN would become infinite where only its low bits are set.
            near = wide + 0x7FFF + ((wide >> 16) & 1)
            halves = (np.where(np.isnan(wide.view("<f4")), 0x7FC00000, near) >> 16).astype("<u2")
            if (np.isfinite(wide.view("<f4")) & (halves & 0x7FFF == 0x7F80)).any():  # rounded to infinity
                raise OverflowError
            return halves.tobytes()
        return _fitting(values, DTYPES[datatype]).tobytes()
    except (TypeError, ValueError, OverflowError):
        raise invalid(f"input '{name}': its values do not fit {datatype}") from None


def pack_field(name: str, datatype: str, values: Sequence[Any]) -> bytes:
    """Return the content of a tensor with the values of a repeated field.

    All values of a field have its type, which protobuf has checked; only integers may not fit.

    Raises:
        Refused: The data type cannot hold them.
    """
    if datatype == "BYTES":
        return join_elements(values)
    limits = LIMITS.get(datatype)
    if limits is None or limits.bits == 64:
        return np.fromiter(values, DTYPES[datatype], len(values)).tobytes()
    wide = np.fromiter(values, np.int64, len(values))
    if len(wide) and (wide.min() < limits.min or wide.max() > limits.max):
        raise invalid(f"input '{name}': its values do not fit {datatype}")
    return wide.astype(DTYPES[datatype]).tobytes()


def _fitting(values: Sequence[Any], dtype: str) -> np.ndarray:
    """Return the values as an array of a type that holds all of them."""
    wanted = np.dtype(dtype)
    if not set(map(type, values)) <= ALLOWED[wanted.kind]:
        raise TypeError
    if wanted.kind != "f":
        if wanted.kind != "b" and len(values):
            limits = np.iinfo(wanted)
            if min(values) < limits.min or max(values) > limits.max:
                raise OverflowError
        return np.array(values, wanted)
    wide = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        array = wide.astype(wanted)
    if not np.array_equal(np.isfinite(array), np.isfinite(wide)):
        raise OverflowError
    return array


def unpack(tensor: Tensor) -> list[Any]:
    """Return a tensor's values in a flat list: numbers, booleans, or ``bytes`` for ``BYTES``."""
    if tensor.datatype == "BYTES":
        return split_elements(tensor.content)
    array = np.frombuffer(tensor.content, DTYPES[tensor.datatype])
    if tensor.datatype == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    found: list[Any] = array.tolist()
    return found


def join_elements(elements: Iterable[bytes]) -> bytes:
    """Return the content of a tensor of ``BYTES``."""
    return b"".join(part for one in elements for part in (LENGTH.pack(len(one)), one))


def split_elements(content: bytes) -> list[bytes]:
    """Return the elements in the content of a tensor of ``BYTES``."""
    found = []
    at = 0
    while at < len(content):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(content, at)[0]
        found.append(content[begin:at])
    return found


def invalid(reason: str) -> Refused:
    """Return the refusal of a malformed request."""
    return Refused(Status.INVALID, reason)
