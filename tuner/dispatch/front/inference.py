"""The methods of KServe's gRPC service."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from tuner import __version__
from tuner.dispatch.front.calls import Call, Method
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.front.messages.kserve import PARTS, parse, read_request, write_metadata, write_reply

__all__ = ["EXTENSIONS", "FREE", "NAME", "SERVICE", "InferenceService"]

SERVICE = "/inference.GRPCInferenceService/"
FREE = frozenset(SERVICE + name for name in ("ServerLive", "ServerReady", "ModelReady"))
"""Methods without a token: orchestrators ask them."""
NAME = "servetune"
EXTENSIONS = ("binary_tensor_data",)


class InferenceService:
    """Answers the calls of KServe's clients.

    Args:
        intake: Takes the requests.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def methods(self) -> dict[str, Method]:
        """Return the methods by their full names."""
        found: dict[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelInfer": self._infer,
        }
        return {SERVICE + name: method for name, method in found.items()}

    async def _live(self, _message: bytes, _call: Call) -> bytes:
        return bytes(service_pb2.ServerLiveResponse(live=True).SerializeToString())

    async def _ready(self, _message: bytes, _call: Call) -> bytes:
        return bytes(service_pb2.ServerReadyResponse(ready=self._intake.ready()).SerializeToString())

    async def _model_ready(self, message: bytes, _call: Call) -> bytes:
        question = parse(service_pb2.ModelReadyRequest, message)
        ready = await self._intake.serves(question.name, question.version)
        return bytes(service_pb2.ModelReadyResponse(ready=ready).SerializeToString())

    async def _server(self, _message: bytes, _call: Call) -> bytes:
        answer = service_pb2.ServerMetadataResponse(name=NAME, version=__version__, extensions=EXTENSIONS)
        return bytes(answer.SerializeToString())

    async def _model(self, message: bytes, _call: Call) -> bytes:
        question = parse(service_pb2.ModelMetadataRequest, message)
        return write_metadata(await self._intake.metadata(question.name, question.version))

    async def _infer(self, message: bytes, call: Call) -> bytes:
        question = parse(service_pb2.ModelInferRequest, message, PARTS)
        request = read_request(question, call.slo())
        return await self._intake.infer(
            request, call.header, lambda reply: write_reply(reply, request.session, question.id)
        )
