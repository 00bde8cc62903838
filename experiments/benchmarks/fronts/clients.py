"""Clients that ask as fast as they are answered; they send bytes that are made once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

__all__ = ["ask_grpc", "ask_http"]

VALUES = 16
"""Of the one small tensor in each request."""
Ask = Callable[[], Awaitable[object]]


async def ask_grpc(port: int, name: str, callers: int, requests: int) -> list[float]:
    """Return the latencies of requests over gRPC, s.

    Args:
        port: Of the server.
        name: Of the server, which says what it is asked.
        callers: At the same time.
        requests: All together.
    """
    import grpc

    method, message = _predict() if name == "front-predict" else _infer()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(method)
        return await _ask([lambda: call(message, timeout=60)] * callers, requests)


async def ask_http(port: int, _name: str, callers: int, requests: int) -> list[float]:
    """Return the latencies of requests over HTTP, s; the arguments are those of ``ask_grpc``."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, VALUES], "data": [0.5] * VALUES}
    body = json.dumps({"inputs": [tensor]}).encode()
    message = (
        b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(callers)]

    def asking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Ask:
        async def ask() -> None:
            writer.write(message)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))

        return ask

    try:
        return await _ask([asking(*stream) for stream in streams], requests)
    finally:
        for _, writer in streams:
            writer.close()


async def _ask(callers: list[Ask], requests: int) -> list[float]:
    latencies = []

    async def repeat(ask: Ask) -> None:
        for _ in range(requests // len(callers)):
            begin = time.perf_counter()
            await ask()
            latencies.append(time.perf_counter() - begin)

    await asyncio.gather(*map(repeat, callers))
    return latencies


def _infer() -> tuple[str, bytes]:
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name="echo", id="1")
    message.inputs.add(name="x", datatype="FP32", shape=[1, VALUES])
    message.raw_input_contents.append(bytes(4 * VALUES))
    return "/inference.GRPCInferenceService/ModelInfer", message.SerializeToString()


def _predict() -> tuple[str, bytes]:
    from tuner.adapters.tfserving.schema import message

    question = message("PredictRequest")()
    question.model_spec.name = "echo"
    tensor = question.inputs["x"]
    tensor.dtype, tensor.tensor_content = 1, bytes(4 * VALUES)
    for size in (1, VALUES):
        tensor.tensor_shape.dim.add(size=size)
    return "/tensorflow.serving.PredictionService/Predict", question.SerializeToString()
