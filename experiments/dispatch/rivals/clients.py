"""Clients of the servers: they send KServe's requests over gRPC, and check every answer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from tuner.adapters.triton.wire import METHOD
from tuner.experiments.dispatch.rivals.catalogue import MODEL

__all__ = ["AskingClients"]

CONNECTIONS = 4
PAYLOADS = 32
"""Different inputs; the answers to them are known."""
WIDTH = 64
"""Values of an input."""
CLOSE = 1e-4
PATIENCE = 120.0
"""s that an answer may take."""


class AskingClients:
    """Clients with some connections to one server; open while the context lasts.

    Args:
        port: Of the server.
        network: File of the network that the server executes.
    """

    def __init__(self, port: int, network: Path) -> None:
        import onnxruntime

        inputs = np.random.default_rng(0).random((PAYLOADS, WIDTH), np.float32)
        (self._known,) = onnxruntime.InferenceSession(str(network)).run(None, {"input": inputs})
        self._messages = [_message(one) for one in inputs]
        self._port = port
        self._channels: list[grpc.aio.Channel] = []

    async def __aenter__(self) -> Self:
        options = [("grpc.use_local_subchannel_pool", 1)]  # else they would share a connection
        address = f"127.0.0.1:{self._port}"
        self._channels = [grpc.aio.insecure_channel(address, options) for _ in range(CONNECTIONS)]
        self._calls = [channel.unary_unary(METHOD) for channel in self._channels]
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def at_once(self, callers: int, requests: int) -> None:
        """Send requests as fast as they are answered.

        Args:
            callers: How many wait for an answer at a time.
            requests: All together.
        """
        numbers = iter(range(requests))

        async def repeat() -> None:
            for number in numbers:
                await self.ask(number)

        await asyncio.gather(*[repeat() for _ in range(callers)])

    async def at_times(self, times: list[float]) -> list[float]:
        """Send requests at their times, whatever comes of those before; return their latencies, s."""
        began = time.perf_counter() + 0.1

        async def later(number: int, due: float) -> float:
            await asyncio.sleep(began + due - time.perf_counter())
            await self.ask(number)
            return time.perf_counter() - began - due

        return await asyncio.gather(*[later(*one) for one in enumerate(times)])

    async def ask(self, number: int) -> None:
        """Send one request.

        Raises:
            grpc.aio.AioRpcError: It was not answered.
            ValueError: It was not answered rightly.
        """
        which = number % PAYLOADS
        answer = await self._calls[number % CONNECTIONS](self._messages[which], timeout=PATIENCE)
        if np.abs(_values(answer) - self._known[which]).max() > CLOSE:
            raise ValueError("a wrong answer")


def _message(values: Any) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=MODEL, id="1")
    message.inputs.add(name="input", datatype="FP32", shape=(1, WIDTH))
    message.raw_input_contents.append(values.tobytes())
    return bytes(message.SerializeToString())


def _values(answer: bytes) -> Any:
    message = service_pb2.ModelInferResponse.FromString(answer)
    return np.frombuffer(message.raw_output_contents[0], np.float32)
