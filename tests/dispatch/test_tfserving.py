"""Batches to a TensorFlow Serving, or its stand-in."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tuner.adapters.tfserving.embedded import EmbeddedTFServing
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.connection import Lost, ModelLimits
from tuner.dispatch.request import Refused, Request, Tensor

pytestmark = pytest.mark.tfserving


def test_a_batch_is_answered(tfserving: EmbeddedTFServing) -> None:
    """It is ready, says what its model expects, and answers a batch; another model is not there."""

    async def main() -> None:
        connection = connect([tfserving.target, tfserving.target.replace("/mlp", "/nothing", 1)])
        assert await connection.ready("mlp", 5.0)
        assert not await connection.ready("nothing", 5.0)
        assert await connection.limits("mlp", 5.0) == ModelLimits()
        metadata = await connection.metadata("mlp", 5.0)
        (kind,) = metadata.inputs
        assert kind.datatype == "FP32"
        rows = np.zeros((3, 256), np.float32)
        inputs = (Tensor(kind.name, "FP32", (3, 256), rows.tobytes()),)
        reply = await connection.infer("mlp", Request("mlp", inputs), inputs)
        assert reply.outputs[0].shape[0] == 3
        assert reply.version == metadata.versions[0]
        with pytest.raises((Lost, Refused)):
            await connection.infer("nothing", Request("nothing", inputs), inputs)
        await connection.close()

    asyncio.run(main())
