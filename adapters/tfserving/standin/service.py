"""The gRPC services of the stand-in, with the messages of the package tensorflow-serving-api."""

from __future__ import annotations

import time
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.standin.core import INVALID_ARGUMENT, UNKNOWN, Core, Rejected
from tuner.adapters.tfserving.standin.servable import Signature

__all__ = ["serve"]

DEFAULT_SIGNATURE = "serving_default"
STATUS = {code.value[0]: code for code in grpc.StatusCode}
LARGEST_MESSAGE = 1 << 30


def serve(core: Core, host: str, port: int, workers: int) -> grpc.Server:
    """Start answering on a port.

    Args:
        core: The models.
        host: The address to listen on.
        port: Its port.
        workers: Requests in work at a time.

    Raises:
        RuntimeError: The port is in use.
    """
    limits = [("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.so_reuseport", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(workers), options=limits)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Prediction(core), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Models(core), server)
    server.add_insecure_port(f"{host}:{port}")
    server.start()
    return server


class _Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):  # type: ignore[misc, unused-ignore]
    def __init__(self, core: Core) -> None:
        self._core = core

    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802  gRPC's name
        begun, name = time.perf_counter(), request.model_spec.name
        try:
            answer = self._predict(request)
        except Rejected as error:
            self._core.metrics.request(name, STATUS[error.code].name, 0.0)
            context.abort(STATUS[error.code], str(error))
        self._core.metrics.request(name, "OK", time.perf_counter() - begun)
        return answer

    def _predict(self, request: Any) -> Any:
        with self._core.servable(request.model_spec) as (number, servable):
            wanted = request.model_spec.signature_name or DEFAULT_SIGNATURE
            signature = servable.signatures.get(wanted)
            if signature is None:
                problem = f'Serving signature name: "{wanted}" not found in signature def'
                raise Rejected(INVALID_ARGUMENT, problem)
            try:
                outputs = servable.run(signature, _arrays(request.inputs, signature))
            except tf.errors.OpError as error:
                raise Rejected(error.error_code, error.message) from error
            except (ValueError, TypeError) as error:  # a shape that does not fit
                raise Rejected(INVALID_ARGUMENT, str(error)) from error
        answer = predict_pb2.PredictResponse()
        answer.model_spec.CopyFrom(request.model_spec)
        answer.model_spec.version.value = number
        for key in request.output_filter or outputs:
            _set_tensor(answer.outputs[key], outputs[key])
        return answer

    def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        try:
            with self._core.servable(request.model_spec) as (number, servable):
                signatures = get_model_metadata_pb2.SignatureDefMap()
                for name, signature in servable.signatures.items():
                    _describe(signatures.signature_def[name], signature)
        except Rejected as error:
            context.abort(STATUS[error.code], str(error))
        answer.model_spec.name = request.model_spec.name
        answer.model_spec.version.value = number
        answer.metadata["signature_def"].Pack(signatures)
        return answer


class _Models(model_service_pb2_grpc.ModelServiceServicer):  # type: ignore[misc, unused-ignore]
    def __init__(self, core: Core) -> None:
        self._core = core

    def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = get_model_status_pb2.GetModelStatusResponse()
        try:
            states = self._core.model(request.model_spec).states()
        except Rejected as error:
            context.abort(STATUS[error.code], str(error))
        for number, (state, words) in states.items():
            entry = answer.model_version_status.add(version=number, state=int(state))
            if words:
                entry.status.error_code, entry.status.error_message = UNKNOWN, words
        return answer

    def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        answer = model_management_pb2.ReloadConfigResponse()
        config = message("ModelServerConfig").FromString(request.config.SerializeToString())
        try:
            self._core.reload(config)
        except Rejected as error:
            answer.status.error_code, answer.status.error_message = error.code, str(error)
        return answer


def _arrays(tensors: Any, signature: Signature) -> dict[str, np.ndarray]:
    if set(tensors) != set(signature.inputs):
        problem = f"input keys {sorted(tensors)} do not match the signature's {sorted(signature.inputs)}"
        raise Rejected(INVALID_ARGUMENT, problem)
    return {name: _array(tensors[name]) for name in signature.inputs}


def _array(tensor: Any) -> np.ndarray:
    if not tensor.tensor_content:
        return np.asarray(tf.make_ndarray(tensor))
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    return np.frombuffer(tensor.tensor_content, tf.as_dtype(tensor.dtype).as_numpy_dtype).reshape(shape)


def _set_tensor(tensor: Any, array: np.ndarray) -> None:
    kind = tf.as_dtype(array.dtype)
    tensor.dtype = kind.as_datatype_enum
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    if kind == tf.string:
        tensor.string_val.extend(array.ravel().tolist())
    else:
        tensor.tensor_content = array.tobytes()


def _describe(definition: Any, signature: Signature) -> None:
    for name, spec in signature.inputs.items():
        info = definition.inputs[name]
        info.name, info.dtype = f"{name}:0", spec.dtype.as_datatype_enum
        info.tensor_shape.CopyFrom(spec.shape.as_proto())
