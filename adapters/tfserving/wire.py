"""Speaks TensorFlow Serving's prediction protocol; see :class:`tuner.adapters.connection.endpoint.Wire`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.request import FilledInput, Input
from tuner.adapters.tfserving.schema import message
from tuner.errors import InvalidInput

__all__ = ["METHOD", "encode", "read_inputs", "signature_inputs"]

SERVICE = "/tensorflow.serving.PredictionService/"
METHOD = SERVICE + "Predict"
DEFAULT_SIGNATURE = "serving_default"

DATATYPES = {
    1: "FP32",
    2: "FP64",
    3: "INT32",
    4: "UINT8",
    5: "INT16",
    6: "INT8",
    7: "BYTES",
    9: "INT64",
    10: "BOOL",
    14: "BF16",
    17: "UINT16",
    19: "FP16",
    22: "UINT32",
    23: "UINT64",
}
"""TensorFlow's number of a data type -> its name in requests."""
NUMBERS = {name: number for number, name in DATATYPES.items()}


async def read_inputs(channel: Any, endpoint: Endpoint, timeout: float) -> list[Input]:
    """Ask the server for the inputs of the model's signature."""
    ask = channel.unary_unary(
        SERVICE + "GetModelMetadata",
        request_serializer=message("GetModelMetadataRequest").SerializeToString,
        response_deserializer=message("GetModelMetadataResponse").FromString,
    )
    question = message("GetModelMetadataRequest")(metadata_field=["signature_def"])
    question.model_spec.CopyFrom(_spec(endpoint))
    return signature_inputs(await ask(question, timeout=timeout), _signature(endpoint))


def signature_inputs(metadata: Any, signature: str) -> list[Input]:
    """Return the inputs of a signature of a model.

    Args:
        metadata: A ``GetModelMetadataResponse``.
        signature: Its name.

    Raises:
        InvalidInput: The model has no such signature, or a data type is unknown.
    """
    signatures = message("SignatureDefMap").FromString(metadata.metadata["signature_def"].value).signature_def
    if signature not in signatures:
        known = ", ".join(sorted(name for name in signatures if not name.startswith("__")))
        raise InvalidInput("TARGET signature", f"the model has no '{signature}'", f"its signatures: {known}")
    return [_input(name, info) for name, info in sorted(signatures[signature].inputs.items())]


def _input(name: str, info: Any) -> Input:
    if info.tensor_shape.unknown_rank:
        fix = "leave --rate out, or name another signature with signature="
        raise InvalidInput(f"input {name}", "the model does not say how many dimensions it has", fix)
    datatype = DATATYPES.get(info.dtype, f"number {info.dtype}")
    return Input(name, datatype, tuple(int(dim.size) for dim in info.tensor_shape.dim))


def encode(endpoint: Endpoint, inputs: Iterable[FilledInput]) -> bytes:
    """Return a serialised ``PredictRequest``."""
    request = message("PredictRequest")()
    request.model_spec.CopyFrom(_spec(endpoint))
    request.model_spec.signature_name = _signature(endpoint)
    for tensor, shape, content in inputs:
        entry = request.inputs[tensor.name]
        entry.dtype = NUMBERS[tensor.datatype]
        for size in shape:
            entry.tensor_shape.dim.add(size=size)
        if tensor.datatype == "BYTES":  # texts of eight letters, each with its length before it
            entry.string_val.extend(content[at + 4 : at + 12] for at in range(0, len(content), 12))
        else:
            entry.tensor_content = content
    return bytes(request.SerializeToString(deterministic=True))


def _signature(endpoint: Endpoint) -> str:
    return endpoint.options.get("signature", DEFAULT_SIGNATURE)


def _spec(endpoint: Endpoint) -> Any:
    return message("ModelSpec")(name=endpoint.model, version_label=endpoint.options.get("label", ""))
