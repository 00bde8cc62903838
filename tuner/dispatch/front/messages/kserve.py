"""KServe's protocol over gRPC: its messages become requests, and replies become its messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from tuner.dispatch.front.intake import deadline_after
from tuner.dispatch.front.messages.datatype import (
    check_values,
    checked,
    elements_of,
    gathered,
    invalid,
    pack_field,
    shape_of,
)
from tuner.dispatch.front.messages.parameters import (
    Value,
    check_parameter_count,
    check_tensor_parameters,
    split_parameters,
)
from tuner.dispatch.front.messages.wire import Parts, check_work
from tuner.dispatch.request import Metadata, Reply, Request, Tensor

__all__ = [
    "MOST_TENSORS",
    "PARTS",
    "check_count",
    "check_names",
    "parse",
    "read_request",
    "write_metadata",
    "write_reply",
]

MOST_TENSORS = 64
"""Inputs of a request, and outputs that it names."""
CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where a tensor has its values if they are not raw; the other data types are always raw."""
PARTS: Parts = {5: {5: {8: None}}, 7: None}
"""Of a ``ModelInferRequest``: ``bytes_contents`` in ``contents`` of ``inputs``, ``raw_input_contents``."""
NO_PARTS: Parts = {}
NO_PARAMETERS: tuple[dict[str, Value], float | None] = ({}, None)


def parse(kind: Any, data: bytes, parts: Parts = NO_PARTS) -> Any:
    """Parse a message of protobuf.

    Args:
        kind: The class of the message.
        data: The serialised message.
        parts: Which of its fields may be large.

    Raises:
        Refused: The data are no such message, or would take too long to read.
    """
    check_work(data, parts)
    try:
        return kind.FromString(data)
    except DecodeError:
        raise invalid(f"the message is no {kind.DESCRIPTOR.name}") from None


def read_request(message: Any, slo: float | None) -> Request:
    """Return the request in a ``ModelInferRequest``.

    Args:
        message: The message.
        slo: Until its deadline, s, as the call or its headers say; the parameter ``timeout`` may be shorter.

    Raises:
        Refused: It is malformed, or asks for what is not offered.
    """
    parameters, timeout = NO_PARAMETERS
    if message.parameters:
        check_parameter_count(message.parameters)
        parameters, timeout = split_parameters(
            {name: _value(one) for name, one in message.parameters.items()}
        )
    return Request(
        message.model_name,
        _inputs(message),
        _outputs(message),
        deadline_after(slo, timeout),
        message.model_version,
        parameters,
    )


def _value(parameter: Any) -> bool | int | float | str:
    kind = parameter.WhichOneof("parameter_choice")
    if kind is None:
        raise invalid("a parameter has no value")
    value: bool | int | float | str = getattr(parameter, kind)
    return value


def _inputs(message: Any) -> tuple[Tensor, ...]:
    inputs, raw = message.inputs, message.raw_input_contents
    check_count("inputs", inputs)
    names = []
    for tensor in inputs:
        names.append(tensor.name)
        if tensor.parameters:
            check_tensor_parameters(tensor.name, tensor.parameters)
        if raw and tensor.HasField("contents"):
            raise invalid("a request has its values in raw_input_contents or in contents, not in both")
    check_names("inputs", names)
    if not raw:
        fields = [_field(tensor) for tensor in inputs]
        check_values(fields, "the values in raw_input_contents")
        return gathered(map(_typed, inputs, fields))
    if len(raw) != len(inputs):
        raise invalid(f"raw_input_contents has {len(raw)} entries for {len(inputs)} inputs")
    return gathered(
        checked(tensor.name, tensor.datatype, tensor.shape, content)
        for tensor, content in zip(inputs, raw, strict=True)
    )


def _field(tensor: Any) -> Sequence[Any]:
    """Return the values of an input that has them in ``contents``."""
    name, datatype, contents = tensor.name, tensor.datatype, tensor.contents
    field = CONTENTS.get(datatype)
    given = [found.name for found, _ in contents.ListFields()]
    if given and field is None:
        raise invalid(f"input '{name}': values of type {datatype} come in raw_input_contents")
    if given and given != [field]:
        raise invalid(
            f"input '{name}': values of type {datatype} come in {field}, but got {', '.join(given)}"
        )
    values: Sequence[Any] = getattr(contents, given[0]) if given else ()
    return values


def _typed(tensor: Any, values: Sequence[Any]) -> Tensor:
    """Return an input with the values of its field."""
    name, datatype, shape = tensor.name, tensor.datatype, shape_of(tensor.name, tensor.shape)
    elements = elements_of(name, shape)
    if len(values) != elements:
        raise invalid(
            f"input '{name}': the shape {list(shape)} has {elements} elements, but got {len(values)}"
        )
    return checked(name, datatype, shape, pack_field(name, datatype, values) if values else b"")


def _outputs(message: Any) -> tuple[str, ...]:
    if not message.outputs:
        return ()
    check_count("outputs", message.outputs)
    outputs = tuple(output.name for output in message.outputs)
    check_names("outputs", outputs)
    for output in message.outputs:
        if output.parameters:
            check_tensor_parameters(output.name, output.parameters)
    return outputs


def check_count(what: str, tensors: Sized) -> None:
    """Check how many inputs or outputs a request has, before anything looks at each of them.

    Raises:
        Refused: There are none, or too many.
    """
    if not 0 < len(tensors) <= MOST_TENSORS:
        raise invalid(f"a request has 1 to {MOST_TENSORS} {what}, but got {len(tensors)}")


def check_names(what: str, names: Collection[str]) -> None:
    """Check the names of the inputs or outputs of a request.

    Raises:
        Refused: One has no name, or two have the same.
    """
    if len(set(names)) < len(names) or "" in names:
        raise invalid(f"the {what} of a request have different names")


def write_reply(reply: Reply, session: str, request_id: str) -> bytes:
    """Return a serialised ``ModelInferResponse``.

    It is written in two parts, which protobuf reads as one: most requests have the first in common.
    """
    kinds = tuple([(tensor.name, tensor.datatype, tensor.shape) for tensor in reply.outputs])
    contents = [tensor.content for tensor in reply.outputs]
    values = service_pb2.ModelInferResponse(id=request_id, raw_output_contents=contents)
    return bytes(_reply_head(session, reply.version, kinds) + values.SerializeToString())


@lru_cache(maxsize=1024)
def _reply_head(session: str, version: str, kinds: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    """Return a serialised ``ModelInferResponse`` without its id and its values."""
    message = service_pb2.ModelInferResponse(model_name=session, model_version=version)
    for name, datatype, shape in kinds:
        message.outputs.add(name=name, datatype=datatype, shape=shape)
    return bytes(message.SerializeToString())


def write_metadata(metadata: Metadata) -> bytes:
    """Return a serialised ``ModelMetadataResponse``."""
    message = service_pb2.ModelMetadataResponse(
        name=metadata.name, versions=metadata.versions, platform=metadata.platform
    )
    for field, kinds in ((message.inputs, metadata.inputs), (message.outputs, metadata.outputs)):
        for kind in kinds:
            field.add(name=kind.name, datatype=kind.datatype, shape=kind.shape)
    return bytes(message.SerializeToString())
