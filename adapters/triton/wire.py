"""Makes requests of our own to a model on Triton; see :class:`tuner.adapters.connection.endpoint.Wire`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.request import Input, filled_inputs

__all__ = ["METHOD", "infer_request", "make_request"]

SERVICE = "/inference.GRPCInferenceService/"
METHOD = SERVICE + "ModelInfer"


async def make_request(
    channel: Any,
    endpoint: Endpoint,
    shapes: Mapping[str, Sequence[int]],
    generator: np.random.Generator,
    timeout: float,
) -> bytes:
    """Ask the server for the model's inputs, and return a serialised request of one row."""
    ask = channel.unary_unary(
        SERVICE + "ModelMetadata",
        request_serializer=service_pb2.ModelMetadataRequest.SerializeToString,
        response_deserializer=service_pb2.ModelMetadataResponse.FromString,
    )
    version = endpoint.options.get("version", "")
    question = service_pb2.ModelMetadataRequest(name=endpoint.model, version=version)
    metadata = await ask(question, timeout=timeout)
    inputs = [Input(tensor.name, tensor.datatype, tuple(tensor.shape)) for tensor in metadata.inputs]
    return infer_request(endpoint.model, inputs, shapes, generator, version=version)


def infer_request(
    model: str,
    inputs: Iterable[Input],
    shapes: Mapping[str, Sequence[int]],
    generator: np.random.Generator,
    *,
    version: str = "",
) -> bytes:
    """Return a serialised ``ModelInferRequest`` with one row of random data.

    Args:
        model: The model's name.
        inputs: Its inputs.
        shapes: Shapes for inputs with open dimensions, without the batch dimension; open ones become 1.
        generator: Of the data.
        version: The model's version; empty for the server's choice.

    Raises:
        InvalidInput: A shape is for no input or does not fit, or a data type is unknown.
    """
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for tensor, shape, content in filled_inputs(inputs, shapes, generator):
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
        request.raw_input_contents.append(content)
    return bytes(request.SerializeToString())
