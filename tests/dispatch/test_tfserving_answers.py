"""What a TensorFlow Serving answers is passed on, whatever a client may send."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.target import parse_target
from tuner.adapters.tfserving.wire import NUMBERS
from tuner.dispatch.backends.connection import Lost, ModelLimits
from tuner.dispatch.backends.tfserving import TFServingConnection
from tuner.dispatch.front.messages.datatype import MOST_TEXTS
from tuner.dispatch.request import Refused, Reply, Request, Status


def answered(answer: Any) -> Reply:
    """Return what a connection makes of an answer."""

    async def main() -> Reply:
        connection = TFServingConnection([parse_target("tfserving://127.0.0.1:1/m")])

        async def predict(*_: object, **__: object) -> Any:
            return answer

        connection._predict = predict
        try:
            return await connection.infer("m", Request("m", ()), ())
        finally:
            await connection.close()

    return asyncio.run(main())


def limits(code: grpc.StatusCode | None = None, **shapes: list[int] | None) -> ModelLimits:
    """Return what a connection makes of a signature.

    Args:
        code: The server answers with that instead.
        shapes: Of its tensors, of which those with an ``o`` before their names are outputs; None is of
            unknown rank.
    """

    async def main() -> ModelLimits:
        connection = TFServingConnection([parse_target("tfserving://127.0.0.1:1/m")])

        async def metadata(*_: object, **__: object) -> Any:
            if code is not None:
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
            described = message("SignatureDefMap")()
            signature = described.signature_def["serving_default"]
            for name, shape in shapes.items():
                info = (signature.outputs if name.startswith("o") else signature.inputs)[name]
                info.tensor_shape.unknown_rank = shape is None
                for size in shape or ():
                    info.tensor_shape.dim.add(size=size)
            answer = message("GetModelMetadataResponse")()
            answer.metadata["signature_def"].value = described.SerializeToString()
            return answer

        connection._metadata = metadata
        try:
            return await connection.limits("m", 1.0)
        finally:
            await connection.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("shapes", "most"),
    [
        ({"x": [-1, 4], "o": [-1, 3]}, None),
        ({"x": [-1, 4], "o": None}, None),
        ({}, None),
        ({"x": [1, 224, 224, 3], "o": [1, 1000]}, 1),
        ({"x": [-1, 4], "o": [-1, 3], "oclasses": [3]}, 0),
        ({"x": [-1, 4], "o": [-1, 3], "oversion": [1]}, 0),
        ({"x": [-1, 4], "oloss": []}, 0),
        ({"x": [1, 224, 224, 3], "threshold": [], "o": [1, 1000]}, 0),
    ],
)
def test_limits_are_those_of_the_signature(shapes: dict[str, list[int] | None], most: int | None) -> None:
    """Where the first dimension of a tensor is not open, it is not the number of items."""
    assert limits(**shapes) == ModelLimits(max_batch=most)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED])
def test_a_server_that_says_nothing_of_its_models(code: grpc.StatusCode) -> None:
    """It is used all the same."""
    assert limits(code) == ModelLimits()


def test_a_server_that_is_too_busy_to_say() -> None:
    """What it said before stays true."""
    with pytest.raises(Lost):
        limits(grpc.StatusCode.DEADLINE_EXCEEDED)


def test_more_texts_than_a_client_may_send() -> None:
    """The batch was executed: it is not executed again."""
    answer = message("PredictResponse")()
    words = answer.outputs["words"]
    words.dtype = NUMBERS["BYTES"]
    words.tensor_shape.dim.add(size=MOST_TEXTS + 1)
    words.string_val.extend([b"x"] * (MOST_TEXTS + 1))

    (tensor,) = answered(answer).outputs

    assert tensor.shape == (MOST_TEXTS + 1,)


def test_an_output_that_cannot_be_passed_on() -> None:
    """It is not the client's fault."""
    answer = message("PredictResponse")()
    answer.outputs["odd"].dtype = 20  # a resource handle

    with pytest.raises(Refused, match="an output cannot be passed on") as refused:
        answered(answer)

    assert refused.value.status is Status.INTERNAL
