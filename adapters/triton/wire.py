"""Speaks Triton's inference protocol; see :class:`tuner.adapters.connection.endpoint.Wire`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tritonclient.grpc import service_pb2

from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.request import FilledInput, Input

__all__ = ["METHOD", "encode", "read_inputs"]

SERVICE = "/inference.GRPCInferenceService/"
METHOD = SERVICE + "ModelInfer"


async def read_inputs(channel: Any, endpoint: Endpoint, timeout: float) -> list[Input]:
    """Ask the server for the inputs of the model."""
    ask = channel.unary_unary(
        SERVICE + "ModelMetadata",
        request_serializer=service_pb2.ModelMetadataRequest.SerializeToString,
        response_deserializer=service_pb2.ModelMetadataResponse.FromString,
    )
    question = service_pb2.ModelMetadataRequest(name=endpoint.model, version=_version(endpoint))
    metadata = await ask(question, timeout=timeout)
    return [Input(tensor.name, tensor.datatype, tuple(tensor.shape)) for tensor in metadata.inputs]


def encode(endpoint: Endpoint, inputs: Iterable[FilledInput]) -> bytes:
    """Return a serialised ``ModelInferRequest``."""
    request = service_pb2.ModelInferRequest(model_name=endpoint.model, model_version=_version(endpoint))
    for tensor, shape, content in inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
        request.raw_input_contents.append(content)
    return bytes(request.SerializeToString())


def _version(endpoint: Endpoint) -> str:
    """Return the version that requests name; empty for the server's choice."""
    return endpoint.options.get("version", "")
