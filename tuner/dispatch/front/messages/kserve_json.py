"""KServe's protocol over HTTP: its JSON and binary bodies become requests, and replies become bodies.

With the extension for binary data, a body is JSON followed by the values of those tensors that have
``binary_data_size``, in their order; the header ``Inference-Header-Content-Length`` is the JSON's length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tuner.dispatch.front.intake import Oversize, deadline_after
from tuner.dispatch.front.messages.datatype import (
    DTYPES,
    MOST_DIMENSIONS,
    MOST_VALUES,
    checked,
    elements_of,
    gathered,
    invalid,
    pack,
    shape_of,
    unpack,
)
from tuner.dispatch.front.messages.kserve import check_count, check_names
from tuner.dispatch.front.messages.parameters import Value, check_tensor_parameters, split_parameters
from tuner.dispatch.request import Metadata, Reply, Request, Tensor

__all__ = ["Inference", "metadata_body", "read_body", "reply_body"]

SIZES = range(2**63)
"""What a dimension may be: servers and numpy count so far."""
LARGEST_JSON = 2_000_000
"""Bytes of the JSON in a body: reading it holds up the other requests. Binary data are outside of it."""
WORDS: dict[type[Any], str] = {str: "text", list: "a list", dict: "an object"}
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Inference:
    """A request, and what its answer looks like.

    Args:
        request: The request.
        request_id: What the client calls it.
        binary: Whether the outputs that are not named here are binary.
        named: For each output that the request names, whether it is binary.
    """

    request: Request
    request_id: str
    binary: bool
    named: Mapping[str, bool]


def read_body(
    body: bytes, header_length: int | None, session: str, version: str, slo: float | None
) -> Inference:
    """Return the inference that the body of a request asks for.

    Args:
        body: The body.
        header_length: Bytes of its JSON; None if it is JSON alone.
        session: The session that the request's address names.
        version: The version that it names; may be empty.
        slo: Until the deadline, s, as a header says; the parameter ``timeout`` may be shorter.

    Raises:
        Refused: It is malformed, or asks for what is not offered.
    """
    length = len(body) if header_length is None else header_length
    if length > len(body):
        raise invalid(f"Inference-Header-Content-Length is {length}, but the body has {len(body)} bytes")
    question = _json(body[:length])
    parameters = _parameters(question, "the request")
    binary = parameters.pop("binary_data_output", False) is True
    further, timeout = split_parameters(parameters)
    named = _outputs(question, binary)
    inputs = gathered(_inputs(_list(question, "inputs"), body, length))
    request = Request(session, inputs, tuple(named), deadline_after(slo, timeout), version, further)
    return Inference(request, _get(question, "id", str, "the request", ""), binary, named)


def _json(text: bytes) -> dict[str, Any]:
    if len(text) > LARGEST_JSON:
        raise Oversize(f"a request has at most {LARGEST_JSON} bytes of JSON; send values as binary data")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: no JSON, no UTF-8, or a number of too many digits
        raise invalid("the body is no JSON that can be read") from None
    if not isinstance(found, dict):
        raise invalid("the body is no JSON object")
    return found


def _get(
    place: Mapping[str, Any], field: str, kind: type[Kind], where: str, default: Kind | None = None
) -> Kind:
    """Return a field.

    Raises:
        Refused: It is missing and has no default, or is of another type.
    """
    value = place.get(field, default)
    if not isinstance(value, kind):
        raise invalid(f"{where} needs '{field}', which is {WORDS[kind]}")
    if isinstance(value, str):
        _encoded(value)
    return value


def _encoded(text: str) -> bytes:
    """Return a text in UTF-8, as servers get it.

    Raises:
        Refused: It has half of a surrogate pair, which JSON can hold and UTF-8 cannot.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise invalid("a text in the request has half of a surrogate pair") from None


def _list(question: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    found = _get(question, field, list, "the request", [])
    if not all(isinstance(one, dict) for one in found):
        raise invalid(f"'{field}' of the request is a list of objects")
    return found


def _parameters(place: Mapping[str, Any], where: str) -> dict[str, Value]:
    found = _get(place, "parameters", dict, where, {})
    if not all(isinstance(value, Value) for value in found.values()):
        raise invalid(f"the parameters of {where} are numbers, texts or booleans")
    for text in (*found, *found.values()):
        if isinstance(text, str):
            _encoded(text)
    return dict(found)


def _outputs(question: Mapping[str, Any], binary: bool) -> dict[str, bool]:
    """Return the outputs that a request names, and whether each is to be binary."""
    outputs = _list(question, "outputs")
    if not outputs:
        return {}
    check_count("outputs", outputs)
    names = [_get(output, "name", str, "an output") for output in outputs]
    check_names("outputs", names)
    named = {}
    for name, output in zip(names, outputs, strict=True):
        parameters = _parameters(output, f"output '{name}'")
        check_tensor_parameters(name, parameters)
        named[name] = parameters.get("binary_data", binary) is True
    return named


def _inputs(inputs: list[dict[str, Any]], body: bytes, at: int) -> Iterator[Tensor]:
    """Make the inputs.

    Args:
        inputs: As the JSON has them.
        body: The whole body.
        at: Where its binary data begin.
    """
    check_count("inputs", inputs)
    names = [_get(tensor, "name", str, "an input") for tensor in inputs]
    check_names("inputs", names)
    for name, tensor in zip(names, inputs, strict=True):
        where = f"input '{name}'"
        datatype = _get(tensor, "datatype", str, where)
        shape = shape_of(name, _get(tensor, "shape", list, where))
        if not all(type(size) is int and size in SIZES for size in shape):
            raise invalid(f"{where}: its shape is a list of whole numbers of at least 0 and below 2**63")
        parameters = _parameters(tensor, where)
        check_tensor_parameters(name, parameters)
        if (size := parameters.get("binary_data_size")) is None:
            yield _typed(name, datatype, shape, _get(tensor, "data", list, where))
            continue
        if type(size) is not int or not 0 <= size <= len(body) - at or "data" in tensor:
            raise invalid(
                f"{where}: binary_data_size says how many bytes of the body it has in place of 'data'"
            )
        yield checked(name, datatype, shape, body[at : at + size])
        at += size
    if at != len(body):
        raise invalid(f"{len(body) - at} bytes at the end of the body belong to no input")


def _typed(name: str, datatype: str, shape: tuple[int, ...], values: list[Any]) -> Tensor:
    """Return an input that has its values in JSON, in one list or in lists of lists."""
    if datatype not in DTYPES and datatype != "BYTES":
        return checked(name, datatype, shape, b"")
    for _ in range(MOST_DIMENSIONS):
        if not values or not isinstance(values[0], list):
            break
        if not all(isinstance(one, list) for one in values):
            raise invalid(f"input '{name}': some values are in lists and some are not")
        values = [one for many in values for one in many]
    elements = elements_of(name, shape)
    if len(values) != elements:
        raise invalid(
            f"input '{name}': the shape {list(shape)} has {elements} elements, but got {len(values)}"
        )
    if datatype == "BYTES":
        if not all(isinstance(value, str) for value in values):
            raise invalid(f"input '{name}': its values do not fit BYTES")
        values = [_encoded(value) for value in values]
    return checked(name, datatype, shape, pack(name, datatype, values))


def reply_body(reply: Reply, inference: Inference) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON; None if it is JSON alone.

    Raises:
        Refused: An output has texts that JSON cannot hold, or the outputs have too many values for it.
    """
    outputs, binary, values = [], [], 0
    for tensor in reply.outputs:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if inference.named.get(tensor.name, inference.binary):
            entry["parameters"] = {"binary_data_size": len(tensor.content)}
            binary.append(tensor.content)
        else:
            values += math.prod(tensor.shape)
            if values > MOST_VALUES:
                raise invalid(
                    f"the answer has more than the {MOST_VALUES} values that JSON may have; "
                    "ask for binary data (binary_data_output)"
                )
            entry["data"] = _values(tensor)
        outputs.append(entry)
    answer = {"model_name": inference.request.session, "model_version": reply.version, "outputs": outputs}
    if inference.request_id:
        answer["id"] = inference.request_id
    text = json.dumps(answer, separators=(",", ":")).encode()
    return (b"".join([text, *binary]), len(text)) if binary else (text, None)


def _values(tensor: Tensor) -> list[Any]:
    values = unpack(tensor)
    if tensor.datatype != "BYTES":
        return values
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        raise invalid(f"output '{tensor.name}' is no text in UTF-8; ask for it as binary data") from None


def metadata_body(metadata: Metadata) -> dict[str, Any]:
    """Return the metadata of a model as JSON has it."""
    inputs, outputs = (
        [{"name": kind.name, "datatype": kind.datatype, "shape": kind.shape} for kind in kinds]
        for kinds in (metadata.inputs, metadata.outputs)
    )
    return {
        "name": metadata.name,
        "versions": metadata.versions,
        "platform": metadata.platform,
        "inputs": inputs,
        "outputs": outputs,
    }
