"""Sends batches to Triton over KServe's gRPC protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from tuner.adapters.triton.target import TritonTarget
from tuner.adapters.triton.wire import METHOD, SERVICE
from tuner.dispatch.backends.channel import answered, method, open_aio, translated
from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Status, Tensor, TensorKind

__all__ = ["TritonConnection"]


class TritonConnection:
    """One Triton server.

    Args:
        targets: The models on it, at least one, each with its version.
    """

    def __init__(self, targets: Sequence[TritonTarget]) -> None:
        self.address = targets[0].address
        self._versions = {target.model: target.version for target in targets}
        self._channel = open_aio(targets[0])
        self._infer = self._method(METHOD, "ModelInfer")
        self._ready = self._method(f"{SERVICE}ModelReady", "ModelReady")
        self._config = self._method(f"{SERVICE}ModelConfig", "ModelConfig")
        self._metadata = self._method(f"{SERVICE}ModelMetadata", "ModelMetadata")

    def _method(self, path: str, messages: str) -> Any:
        question, answer = (getattr(service_pb2, f"{messages}{kind}") for kind in ("Request", "Response"))
        return method(self._channel, path, question, answer)

    @property
    def probed_at(self) -> str:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        return self.address

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        version = like.version or self._versions[model]
        message = service_pb2.ModelInferRequest(model_name=model, model_version=version)
        for tensor in inputs:
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            message.raw_input_contents.append(tensor.content)
        for name in like.outputs:
            message.outputs.add(name=name)
        for name, value in like.parameters.items():
            _set_parameter(message.parameters[name], value)
        with translated(self.address):
            answer = await self._infer(message, metadata=like.trace and like.trace.headers())
        if len(answer.raw_output_contents) != len(answer.outputs):
            raise Refused(Status.INTERNAL, f"{self.address} sent no values for some outputs of {model}")
        outputs = tuple(
            Tensor(output.name, output.datatype, tuple(output.shape), content)
            for output, content in zip(answer.outputs, answer.raw_output_contents, strict=True)
        )
        return Reply(outputs, answer.model_version)

    async def ready(self, model: str, timeout: float) -> bool:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        question = service_pb2.ModelReadyRequest(name=model, version=self._versions[model])
        try:
            answer = await self._ready(question, timeout=timeout)
        except grpc.RpcError:
            return False
        return bool(answer.ready)

    async def limits(self, model: str, timeout: float) -> ModelLimits:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        question = service_pb2.ModelConfigRequest(name=model, version=self._versions[model])
        with answered(self.address):
            answer = await self._config(question, timeout=timeout)
        config, problem = answer.config, ""
        if config.model_transaction_policy.decoupled:
            problem = "decoupled, and answers a request several times"
        if config.HasField("sequence_batching"):
            problem = "stateful, and its requests belong to sequences"
        if problem:
            problem = f"{model} on {self.address} is {problem}; take it out of the file"
        batches = config.HasField("dynamic_batching")
        return ModelLimits(max_batch=config.max_batch_size, batches_itself=batches, problem=problem)

    async def metadata(self, model: str, timeout: float) -> Metadata:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        version = self._versions[model]
        question = service_pb2.ModelMetadataRequest(name=model, version=version)
        with answered(self.address):
            answer = every = await self._metadata(question, timeout=timeout)
            if version:  # then it names no other, and a request may
                question = service_pb2.ModelMetadataRequest(name=model)
                every = await self._metadata(question, timeout=timeout)
        inputs, outputs = (
            tuple(TensorKind(one.name, one.datatype, tuple(one.shape)) for one in tensors)
            for tensors in (answer.inputs, answer.outputs)
        )
        return Metadata(answer.name, tuple(every.versions), answer.platform, inputs, outputs, version)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _set_parameter(parameter: Any, value: bool | int | float | str) -> None:
    """Give one of the protocol's parameters a value; ``parameter`` is modified in place."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int) and value < 2**63:
        parameter.int64_param = value
    elif isinstance(value, int):
        parameter.uint64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value
