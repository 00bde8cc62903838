"""The methods of TensorFlow Serving's gRPC services."""

from __future__ import annotations

from tuner.adapters.tfserving.schema import message
from tuner.dispatch.front.calls import Call, Method
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.front.messages.kserve import parse
from tuner.dispatch.front.messages.predict import (
    PARTS,
    named_version,
    read_predict,
    signature_of,
    version_number,
    write_predict,
    write_signatures,
)

__all__ = ["FREE", "PREDICT", "PredictionService"]

PREDICT = "/tensorflow.serving.PredictionService/Predict"
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
FREE = frozenset((STATUS,))
"""Methods without a token: orchestrators ask them."""
LOADING, AVAILABLE = 20, 30
"""States of a version."""


class PredictionService:
    """Answers the calls of TensorFlow Serving's clients.

    Args:
        intake: Takes the requests.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def methods(self) -> dict[str, Method]:
        """Return the methods by their full names."""
        return {PREDICT: self._predict, METADATA: self._metadata, STATUS: self._status}

    async def _predict(self, data: bytes, call: Call) -> bytes:
        question = parse(message("PredictRequest"), data, PARTS)
        request = read_predict(question, call.slo())
        signature = signature_of(question.model_spec)
        return await self._intake.infer(
            request, call.header, lambda reply: write_predict(reply, request.session, signature)
        )

    async def _metadata(self, data: bytes, _call: Call) -> bytes:
        spec = parse(message("GetModelMetadataRequest"), data).model_spec
        version = named_version(spec)
        metadata = await self._intake.metadata(spec.name, version)
        newest = max(metadata.versions, key=lambda one: version_number(one) or 0, default="")
        return write_signatures(metadata, version or metadata.version or newest)

    async def _status(self, data: bytes, _call: Call) -> bytes:
        spec = parse(message("GetModelStatusRequest"), data).model_spec
        version = named_version(spec)
        metadata = await self._intake.metadata(spec.name, version)
        state = AVAILABLE if self._intake.ready(spec.name) else LOADING
        answer = message("GetModelStatusResponse")()
        for number in (version,) if version else metadata.versions:
            answer.model_version_status.add(version=version_number(number), state=state)
        return bytes(answer.SerializeToString())
