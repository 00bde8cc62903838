"""Backends that say that they are not available: one that is there may have executed the request."""

from __future__ import annotations

import asyncio

import grpc.aio
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.dispatch.client.frontends import Pipe
from tests.dispatch.client.test_aio import Backends, Input, inferred
from tests.dispatch.clock import run
from tests.dispatch.front.echo import PATIENCE, Echo
from tests.dispatch.test_doubt import Server
from tuner.dispatch.client import AsyncGrantClient, Refused, Status
from tuner.dispatch.client.aio import MOST_TRIES
from tuner.dispatch.grant import Ask, Ended, Grant


class Present(Backends):
    """Those of servers that are there, and serve the model."""

    async def is_model_ready(self, model: str, **options: object) -> bool:
        return True


class CutOff(Present):
    """Those of servers to which the connection broke."""

    async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
        if status := self.left.pop(0):
            raise InferenceServerException("Socket closed", status=f"StatusCode.{status}")
        return model


def test_a_model_that_says_that_it_is_not_available() -> None:
    """Its answer is raised, and the request goes to no other backend."""
    backends, service = Present("UNAVAILABLE", ""), Echo()

    with pytest.raises(InferenceServerException, match="it failed"):
        run(inferred(backends, service))

    assert backends.left == [""]
    assert service.ended == [Ended(0.0, status=Status.UNAVAILABLE)]


def test_a_connection_that_broke() -> None:
    """The backend is lost, also if it is there again at once."""
    service = Echo()

    assert run(inferred(CutOff("UNAVAILABLE", ""), service)) == "model"

    assert [bool(one.lost) for one in service.ended] == [True, False]


class Granting(Echo):
    """Grants a model on a server of this machine, for long."""

    async def grant(self, ask: Ask) -> Grant:
        self.asks.append(ask)
        grant = Grant(self.backend, "m", PATIENCE)
        grant.ended.add_done_callback(lambda one: self.ended.append(one.result()))
        return grant


def test_what_tritons_client_says() -> None:
    """Of a model that says so, and of a server that has gone."""

    async def main() -> None:
        service, server = Granting(), grpc.aio.server(handlers=[Server()])
        service.backend = f"triton://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        data = triton.InferInput("x", [1, 2], "FP32")
        data.set_data_from_numpy(np.ones((1, 2), np.float32))
        async with AsyncGrantClient("nowhere", open_line=lambda: Pipe(service)) as client:
            with pytest.raises(InferenceServerException, match="its licence server is away"):
                await client.infer("echo", [data])
            await server.stop(None)
            with pytest.raises(Refused):
                await client.infer("echo", [data])
        assert [one.status for one in service.ended] == [Status.UNAVAILABLE] + [None] * MOST_TRIES
        assert [bool(one.lost) for one in service.ended] == [False] + [True] * MOST_TRIES

    asyncio.run(main())
