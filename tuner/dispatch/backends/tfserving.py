"""Sends batches to TensorFlow Serving by its Predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import grpc

from tuner.adapters.tfserving.client import VersionState
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.target import TFServingTarget
from tuner.adapters.tfserving.wire import DATATYPES, METHOD, NUMBERS, SERVICE
from tuner.dispatch.backends.channel import answered, method, open_aio, translated
from tuner.dispatch.backends.connection import Lost, ModelLimits
from tuner.dispatch.front.messages.datatype import split_elements
from tuner.dispatch.front.messages.predict import read_tensor, version_number
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Status, Tensor, TensorKind
from tuner.printable import one_line

__all__ = ["TFServingConnection"]

STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
PLATFORM = "tensorflow_savedmodel"


class TFServingConnection:
    """One TensorFlow Serving.

    Args:
        targets: The models on it, at least one, each with its label and signature.
    """

    def __init__(self, targets: Sequence[TFServingTarget]) -> None:
        self.address = targets[0].address
        self._targets = {target.model: target for target in targets}
        self._channel = open_aio(targets[0])
        self._predict = self._method(METHOD, "PredictRequest", "PredictResponse")
        self._status = self._method(STATUS, "GetModelStatusRequest", "GetModelStatusResponse")
        self._metadata = self._method(
            f"{SERVICE}GetModelMetadata", "GetModelMetadataRequest", "GetModelMetadataResponse"
        )

    def _method(self, path: str, question: str, answer: str) -> Any:
        return method(self._channel, path, message(question), message(answer))

    def _fill_spec(self, spec: Any, model: str, version: str = "") -> None:
        spec.name = model
        if version:
            number = version_number(version)
            if number is None:  # KServe's versions are texts
                problem = f"{model} has no version '{one_line(version, 100)}': its server counts them"
                raise Refused(Status.NOT_FOUND, problem)
            spec.version.value = number
        elif self._targets[model].label:
            spec.version_label = self._targets[model].label

    @property
    def probed_at(self) -> str:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        return self.address

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        question = message("PredictRequest")()
        self._fill_spec(question.model_spec, model, like.version)
        question.model_spec.signature_name = self._targets[model].signature
        question.output_filter.extend(like.outputs)
        for tensor in inputs:
            entry = question.inputs[tensor.name]
            entry.dtype = NUMBERS[tensor.datatype]
            for size in tensor.shape:
                entry.tensor_shape.dim.add(size=size)
            if tensor.datatype == "BYTES":
                entry.string_val.extend(split_elements(tensor.content))
            else:
                entry.tensor_content = tensor.content
        with translated(self.address):
            answer = await self._predict(question, metadata=like.trace and like.trace.headers())
        return Reply(self._read_outputs(answer.outputs), str(answer.model_spec.version.value))

    def _read_outputs(self, outputs: Any) -> tuple[Tensor, ...]:
        try:
            # The clients' limit does not hold for them: the batch was executed.
            return tuple(read_tensor(name, outputs[name], math.inf) for name in sorted(outputs))
        except Refused as refused:  # which would blame the client
            problem = f"{self.address}: an output cannot be passed on: {refused.reason}"
            raise Refused(Status.INTERNAL, problem) from refused

    async def ready(self, model: str, timeout: float) -> bool:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        try:
            return bool(await self._served(model, timeout))
        except grpc.RpcError:
            return False

    async def limits(self, model: str, timeout: float) -> ModelLimits:
        """See :class:`~tuner.dispatch.backends.connection.Connection`; a signature says at most whether."""
        try:
            with translated(self.address):
                _, signature = await self._described(model, timeout)
        except Refused as refused:
            if refused.status is Status.DEADLINE:
                raise Lost(refused.reason) from refused
            return ModelLimits()  # what is behind the address says nothing of its models
        return ModelLimits(max_batch=_most_items([*signature.inputs.values(), *signature.outputs.values()]))

    async def metadata(self, model: str, timeout: float) -> Metadata:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        with answered(self.address):
            version, signature = await self._described(model, timeout)
            served = await self._served(model, timeout)
        inputs, outputs = (
            tuple(_kind(name, info) for name, info in sorted(found.items()))
            for found in (signature.inputs, signature.outputs)
        )
        versions = tuple(str(one) for one in sorted(served | {version}))
        return Metadata(model, versions, PLATFORM, inputs, outputs, str(version))

    async def _described(self, model: str, timeout: float) -> tuple[int, Any]:
        """Return a model's version and its signature; raises what gRPC does."""
        question = message("GetModelMetadataRequest")(metadata_field=["signature_def"])
        self._fill_spec(question.model_spec, model)
        answer = await self._metadata(question, timeout=timeout)
        described = message("SignatureDefMap").FromString(answer.metadata["signature_def"].value)
        signature = described.signature_def[self._targets[model].signature]
        return int(answer.model_spec.version.value), signature

    async def _served(self, model: str, timeout: float) -> set[int]:
        """Return the versions of a model that answer; raises what gRPC does."""
        question = message("GetModelStatusRequest")()
        question.model_spec.name = model
        answer = await self._status(question, timeout=timeout)
        return {one.version for one in answer.model_version_status if one.state == VersionState.AVAILABLE}

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _most_items(tensors: Sequence[Any]) -> int | None:
    """Return how many items a batch has at most, by the first dimensions of inputs and outputs.

    Returns:
        None where all are open, 1 where all are 1, else 0: its tensors have no items in common.
    """
    shapes = [tensor.tensor_shape for tensor in tensors]
    firsts = {shape.dim[0].size if shape.dim else 0 for shape in shapes if not shape.unknown_rank}
    if firsts <= {-1}:
        return None
    return int(firsts == {1})


def _kind(name: str, info: Any) -> TensorKind:
    shape = tuple(int(dim.size) for dim in info.tensor_shape.dim)
    return TensorKind(name, DATATYPES.get(info.dtype, str(info.dtype)), shape)
