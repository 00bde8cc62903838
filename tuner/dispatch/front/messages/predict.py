"""TensorFlow Serving's Predict: its messages become requests, and replies become its messages.

A tensor has its values in ``tensor_content``, as they lie in memory, or in a list for its data type. Lists
may be shorter than the tensor: the last value fills it, as ``tf.make_tensor_proto`` uses it. Answers have
lists, as a TensorFlow Serving gives by default: many clients read ``float_val`` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.wire import DATATYPES, DEFAULT_SIGNATURE, NUMBERS
from tuner.dispatch.front.intake import Oversize, deadline_after
from tuner.dispatch.front.messages.datatype import (
    DTYPES,
    MOST_TEXTS,
    SIZES,
    check_values,
    checked,
    elements_of,
    gathered,
    invalid,
    join_elements,
    pack_field,
    shape_of,
    split_elements,
)
from tuner.dispatch.front.messages.kserve import check_count, check_names
from tuner.dispatch.front.messages.wire import Parts
from tuner.dispatch.request import Metadata, Reply, Request, Tensor, TensorKind

__all__ = [
    "PARTS",
    "named_version",
    "read_predict",
    "read_tensor",
    "signature_of",
    "version_number",
    "write_predict",
    "write_signatures",
]

LISTS = {
    "FP32": "float_val",
    "FP64": "double_val",
    "FP16": "half_val",
    "BF16": "half_val",
    "INT8": "int_val",
    "INT16": "int_val",
    "INT32": "int_val",
    "UINT8": "int_val",
    "UINT16": "int_val",
    "INT64": "int64_val",
    "UINT32": "uint32_val",
    "UINT64": "uint64_val",
    "BOOL": "bool_val",
    "BYTES": "string_val",
}
"""The list that has the values of a data type; of 16-bit floats, it has the bits."""
HALVES = ("FP16", "BF16")
PACKED = {"FP32": b"\x2a", "FP64": b"\x32"}
"""How the list of a data type begins in a message where its values lie as in memory."""
CONTENT = b"\x22"
PARTS: Parts = {2: {2: {4: None, 8: None}}}
"""Of a ``PredictRequest``: ``tensor_content`` and ``string_val`` of the values of ``inputs``."""
LARGEST_FILLED = 16_000_000
"""Bytes of the inputs with too few values, filled up: a short message must not take much memory."""
METHOD_NAME = "tensorflow/serving/predict"
SIGNATURES = "type.googleapis.com/tensorflow.serving.SignatureDefMap"


def read_predict(question: Any, slo: float | None) -> Request:
    """Return the request in a ``PredictRequest``.

    Args:
        question: The message.
        slo: Until its deadline, s.

    Raises:
        Refused: It is malformed, or asks for another signature than the default one.
    """
    signature_of(question.model_spec)
    check_count("inputs", question.inputs)
    check_names("inputs", question.inputs)
    outputs: tuple[str, ...] = ()
    if question.output_filter:
        check_count("outputs", question.output_filter)
        outputs = tuple(question.output_filter)
        check_names("outputs", outputs)
    inputs = [(name, question.inputs[name]) for name in sorted(question.inputs)]
    check_values([_field(tensor) for _, tensor in inputs], "the values in tensor_content")
    spec = question.model_spec
    return Request(spec.name, gathered(_tensors(inputs)), outputs, deadline_after(slo), named_version(spec))


def _tensors(inputs: Sequence[tuple[str, Any]]) -> Iterator[Tensor]:
    """Make the inputs; together they are not filled up without end."""
    filled = 0
    for name, tensor in inputs:
        found = read_tensor(name, tensor)
        if not tensor.tensor_content and math.prod(found.shape) > len(_field(tensor)):
            filled += len(found.content)
            if filled > LARGEST_FILLED:
                raise _filled_too_much()
        yield found


def _field(tensor: Any) -> Sequence[Any]:
    """Return the list for the data type of a ``TensorProto``; empty if there is none."""
    field = LISTS.get(DATATYPES.get(tensor.dtype, ""))
    values: Sequence[Any] = () if field is None else getattr(tensor, field)
    return values


def signature_of(spec: Any) -> str:
    """Return the signature that a ``ModelSpec`` names.

    Raises:
        Refused: It is another than the default one.
    """
    name: str = spec.signature_name or DEFAULT_SIGNATURE
    if name != DEFAULT_SIGNATURE:
        raise invalid(f"a session has one signature, which clients name '{DEFAULT_SIGNATURE}' or not at all")
    return name


def named_version(spec: Any) -> str:
    """Return the version that a ``ModelSpec`` names; empty for the server's choice.

    Raises:
        Refused: It names one by a label, which only a server knows.
    """
    if spec.version_label:
        raise invalid("versions are named by number here, not by label")
    return str(spec.version.value) if spec.HasField("version") else ""


def version_number(version: str) -> int | None:
    """Return a version as TensorFlow Serving counts them; None if it is no number."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 19 else None


def read_tensor(name: str, tensor: Any, most_texts: float = MOST_TEXTS) -> Tensor:
    """Return the tensor in a ``TensorProto``.

    Args:
        name: Of the tensor.
        tensor: The message.
        most_texts: Elements that one of ``BYTES`` may have.

    Raises:
        Refused: It is malformed.
    """
    datatype = DATATYPES.get(tensor.dtype)
    if datatype is None:
        raise invalid(f"input '{name}': the data type number {tensor.dtype} is not offered")
    if tensor.tensor_shape.unknown_rank:
        raise invalid(f"input '{name}' does not say how many dimensions it has")
    shape = tuple(dim.size for dim in shape_of(name, tensor.tensor_shape.dim))
    if tensor.tensor_content:
        if datatype == "BYTES":
            raise invalid(f"input '{name}': texts come in string_val")
        return checked(name, datatype, shape, tensor.tensor_content, most_texts)
    elements = elements_of(name, shape)
    values = _field(tensor)
    if len(values) > elements:
        raise invalid(f"input '{name}': {list(shape)} has {elements} elements, but got {len(values)} values")
    return checked(name, datatype, shape, _filled(name, datatype, values, elements), most_texts)


def _filled(name: str, datatype: str, values: Sequence[Any], elements: int) -> bytes:
    """Return the content of a tensor. All further elements have its last value, or 0 if there is none."""
    content = pack_field(name, "UINT16" if datatype in HALVES else datatype, values)
    missing = elements - len(values)
    if not missing:
        return content
    if datatype == "BYTES":
        last = join_elements(values[-1:] or [b""])
    else:
        last = content[-SIZES[datatype] :] or bytes(SIZES[datatype])
    if missing * len(last) > LARGEST_FILLED:
        raise _filled_too_much()
    return content + last * missing


def _filled_too_much() -> Oversize:
    return Oversize(f"at most {LARGEST_FILLED} bytes of the inputs of a request are filled up")


def write_predict(reply: Reply, session: str, signature: str) -> bytes:
    """Return a serialised ``PredictResponse``."""
    answer = message("PredictResponse")()
    _fill_spec(answer.model_spec, session, reply.version, signature)
    for tensor in reply.outputs:
        entry = answer.outputs[tensor.name]
        entry.dtype = NUMBERS[tensor.datatype]
        for size in tensor.shape:
            entry.tensor_shape.dim.add(size=size)
        if tensor.datatype in PACKED:  # without a Python object for each value
            content = message("TensorProto")(tensor_content=tensor.content).SerializeToString()
            entry.MergeFromString(content.replace(CONTENT, PACKED[tensor.datatype], 1))
        else:
            getattr(entry, LISTS[tensor.datatype]).extend(_values(tensor))
    return bytes(answer.SerializeToString())


def _values(tensor: Tensor) -> list[Any]:
    if tensor.datatype == "BYTES":
        return split_elements(tensor.content)
    stored = "<u2" if tensor.datatype in HALVES else DTYPES[tensor.datatype]
    values: list[Any] = np.frombuffer(tensor.content, stored).tolist()
    return values


def write_signatures(metadata: Metadata, version: str) -> bytes:
    """Return a serialised ``GetModelMetadataResponse`` with the one signature of a session's model."""
    answer = message("GetModelMetadataResponse")()
    _fill_spec(answer.model_spec, metadata.name, version, "")
    signatures = message("SignatureDefMap")()
    signature = signatures.signature_def[DEFAULT_SIGNATURE]
    signature.method_name = METHOD_NAME
    for kind in metadata.inputs:
        _describe(signature.inputs, kind)
    for kind in metadata.outputs:
        _describe(signature.outputs, kind)
    entry = answer.metadata["signature_def"]
    entry.type_url, entry.value = SIGNATURES, signatures.SerializeToString()
    return bytes(answer.SerializeToString())


def _describe(tensors: Mapping[str, Any], kind: TensorKind) -> None:
    info = tensors[kind.name]
    info.name, info.dtype = kind.name, NUMBERS.get(kind.datatype, 0)
    for size in kind.shape:
        info.tensor_shape.dim.add(size=size)


def _fill_spec(spec: Any, session: str, version: str, signature: str) -> None:
    spec.name, spec.signature_name = session, signature
    if (number := version_number(version)) is not None:
        spec.version.value = number
