"""Backends that say that they are not available: one that is there may have executed the request."""

from __future__ import annotations

import asyncio
from typing import Any

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


@pytest.mark.parametrize("status", ["UNAVAILABLE", "CANCELLED", "INTERNAL"])
def test_a_connection_that_broke(status: str) -> None:
    """The backend is lost, also if it is there again at once."""
    service = Echo()

    assert run(inferred(CutOff(status, ""), service)) == "model"

    assert [bool(one.lost) for one in service.ended] == [True, False]


class Silent(Backends):
    """Those of servers that answer a request after 0.1 s, and do not say whether they are there."""

    async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
        await asyncio.sleep(0.1)
        return await super().infer(model, inputs, **options)

    async def is_model_ready(self, model: str, **options: Any) -> bool:
        await asyncio.sleep(options["client_timeout"])
        raise InferenceServerException("it is late", status="StatusCode.DEADLINE_EXCEEDED")


def test_a_server_that_does_not_say_whether_it_is_there() -> None:
    """It gets half of the time that is left, so that another one can answer in the rest."""

    async def seconds() -> float:
        began = asyncio.get_running_loop().time()
        assert await inferred(Silent("UNAVAILABLE", ""), service) == "model"
        return asyncio.get_running_loop().time() - began

    service = Echo()  # it grants 0.5 s

    assert run(seconds()) == pytest.approx(0.1 + 0.2 + 0.1, abs=0.05)
    assert [bool(one.lost) for one in service.ended] == [True, False]


class Plain:
    """Clients of another class, which have no more than what is needed."""

    def __init__(self) -> None:
        self.left = ["UNAVAILABLE", ""]

    async def infer(self, model: str, inputs: object, *, outputs: object, client_timeout: float) -> str:
        if status := self.left.pop(0):
            raise InferenceServerException("it failed", status=f"StatusCode.{status}")
        return model

    async def close(self) -> None:
        pass


def test_clients_of_another_class_need_no_more_than_infer_and_close() -> None:
    """One that cannot ask whether its server is there has lost it."""

    async def main() -> None:
        service, plain = Echo(), Plain()
        async with AsyncGrantClient(
            "nowhere", connect=lambda _: plain, open_line=lambda: Pipe(service)
        ) as client:
            assert await client.infer("echo", [Input("x", 1)], timeout=5.0) == "model"
        assert [bool(one.lost) for one in service.ended] == [True, False]

    run(main())


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
