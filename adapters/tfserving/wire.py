"""Makes requests of our own to a model on TensorFlow Serving; see `adapters.connection.endpoint.Wire`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.request import Input, filled_inputs
from tuner.adapters.tfserving.schema import message
from tuner.errors import InvalidInput

__all__ = ["METHOD", "make_request", "predict_request", "signature_inputs"]

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


async def make_request(
    channel: Any,
    endpoint: Endpoint,
    shapes: Mapping[str, Sequence[int]],
    generator: np.random.Generator,
    timeout: float,
) -> bytes:
    """Ask the server for the signature's inputs, and return a serialised request of one row."""
    ask = channel.unary_unary(
        SERVICE + "GetModelMetadata",
        request_serializer=message("GetModelMetadataRequest").SerializeToString,
        response_deserializer=message("GetModelMetadataResponse").FromString,
    )
    question = message("GetModelMetadataRequest")(metadata_field=["signature_def"])
    question.model_spec.CopyFrom(_spec(endpoint))
    answer = await ask(question, timeout=timeout)
    inputs = signature_inputs(answer, endpoint.options.get("signature", DEFAULT_SIGNATURE))
    return predict_request(endpoint, inputs, shapes, generator)


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
        raise InvalidInput(f"input {name}", "the model does not say how many dimensions it has")
    datatype = DATATYPES.get(info.dtype, f"number {info.dtype}")
    return Input(name, datatype, tuple(int(dim.size) for dim in info.tensor_shape.dim))


def predict_request(
    endpoint: Endpoint,
    inputs: Iterable[Input],
    shapes: Mapping[str, Sequence[int]],
    generator: np.random.Generator,
) -> bytes:
    """Return a serialised ``PredictRequest`` with one row of random data.

    Args:
        endpoint: The model, its version label and its signature.
        inputs: The signature's inputs.
        shapes: Shapes for inputs with open dimensions, without the batch dimension; open ones become 1.
        generator: Of the data.

    Raises:
        InvalidInput: A shape is for no input or does not fit, or a data type is unknown.
    """
    request = message("PredictRequest")()
    request.model_spec.CopyFrom(_spec(endpoint))
    request.model_spec.signature_name = endpoint.options.get("signature", DEFAULT_SIGNATURE)
    for tensor, shape, content in filled_inputs(inputs, shapes, generator):
        entry = request.inputs[tensor.name]
        entry.dtype = NUMBERS[tensor.datatype]
        for size in shape:
            entry.tensor_shape.dim.add(size=size)
        if tensor.datatype == "BYTES":  # texts of eight letters, each with its length before it
            entry.string_val.extend(content[at + 4 : at + 12] for at in range(0, len(content), 12))
        else:
            entry.tensor_content = content
    return bytes(request.SerializeToString(deterministic=True))


def _spec(endpoint: Endpoint) -> Any:
    return message("ModelSpec")(name=endpoint.model, version_label=endpoint.options.get("label", ""))
