"""What a TensorFlow Serving answers is passed on, whatever a client may send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.target import parse_target
from tuner.adapters.tfserving.wire import NUMBERS
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
