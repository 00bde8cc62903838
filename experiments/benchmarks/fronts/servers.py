"""Servers that answer at once with what they are asked, each in a process of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Any, Self

import uvicorn
from fastapi import FastAPI
from fastapi import Request as Asked

from tuner.dispatch.request import Metadata, Reply, Request
from tuner.errors import AdapterError

__all__ = ["FrontProcess"]

METHOD = "ModelInfer"
SERVICE = "inference.GRPCInferenceService"


class FrontProcess:
    """A server in another process, which lives as long as the context.

    Args:
        name: Which one; a key of ``SERVERS``.

    Raises:
        AdapterError: On entry: the process ended before it listened. It has said why itself.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.port = 0

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._name, theirs), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.port = self._pipe.recv()
        except EOFError as error:
            self._process.join()
            self._pipe.close()
            raise AdapterError(f"the server {self._name} ended before it listened") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def cpu_seconds(self) -> float:
        """Return how long the process has been on a core."""
        self._pipe.send(None)
        found: float = self._pipe.recv()
        return found


def _serve(name: str, pipe: Pipe) -> None:
    asyncio.run(_listen(name, pipe))


async def _listen(name: str, pipe: Pipe) -> None:
    async with SERVERS[name]() as port:
        pipe.send(port)
        while True:
            await asyncio.to_thread(pipe.recv)
            pipe.send(time.process_time())


class _Echo:
    """The dispatcher that answers at once."""

    sessions: Sequence[str] = ("echo",)

    def ready(self, session: str | None = None) -> bool:  # noqa: ARG002 - as the fronts ask
        return True

    async def metadata(self, session: str) -> Metadata:
        return Metadata(session, ("1",), "", (), ())

    async def infer(self, request: Request, write: Callable[[Reply], bytes]) -> bytes:
        return write(Reply(request.inputs, "1"))


@asynccontextmanager
async def _front() -> AsyncIterator[int]:
    from tuner.dispatch.front import FrontConfig, Fronts

    async with Fronts(_Echo(), FrontConfig(grpc=("127.0.0.1", 0))) as fronts:
        assert fronts.grpc_address is not None
        yield fronts.grpc_address[1]


@asynccontextmanager
async def _front_native() -> AsyncIterator[int]:
    from tuner.dispatch.front import FrontConfig, Fronts

    async with Fronts(_Echo(), FrontConfig(grpc=("127.0.0.1", 0), grpc_server="native")) as fronts:
        assert fronts.grpc_address is not None
        yield fronts.grpc_address[1]


@asynccontextmanager
async def _front_http() -> AsyncIterator[int]:
    from tuner.dispatch.front import FrontConfig, Fronts

    async with Fronts(_Echo(), FrontConfig(http=("127.0.0.1", 0))) as fronts:
        assert fronts.http_address is not None
        yield fronts.http_address[1]


def _answer(data: bytes) -> bytes:
    """Answer as shortly as it can be written down."""
    from tritonclient.grpc import service_pb2

    return bytes(_reply(service_pb2.ModelInferRequest.FromString(data)).SerializeToString())


def _reply(question: Any) -> Any:
    from tritonclient.grpc import service_pb2

    answer = service_pb2.ModelInferResponse(model_name=question.model_name, id=question.id)
    for tensor, content in zip(question.inputs, question.raw_input_contents, strict=True):
        answer.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        answer.raw_output_contents.append(content)
    return answer


@asynccontextmanager
async def _servicer() -> AsyncIterator[int]:
    """The library as its tutorial uses it."""
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # it has no types
        async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - its names
            return _reply(request)

    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Servicer(), server)
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port


def _handler(answer: Any) -> Any:
    import grpc

    method = grpc.unary_unary_rpc_method_handler(answer)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


async def _generic(answer: Any) -> int:
    import grpc

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handler(answer),))
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _KEPT.append(server)
    return port


_KEPT: list[Any] = []
"""gRPC stops a server that nobody holds."""


@asynccontextmanager
async def _unary() -> AsyncIterator[int]:
    """GRPC itself waits for the message of a call, however long it takes."""

    async def answer(data: bytes, _context: Any) -> bytes:
        return _answer(data)

    yield await _generic(answer)


@asynccontextmanager
async def _bytes() -> AsyncIterator[int]:
    async def answer(data: bytes, _context: Any) -> bytes:
        return data

    yield await _generic(answer)


@asynccontextmanager
async def _threads() -> AsyncIterator[int]:
    """Threads take the calls; the dispatcher answers on its loop, as it must."""
    import grpc

    loop = asyncio.get_running_loop()

    async def dispatched(data: bytes) -> bytes:
        return _answer(data)

    def answer(data: bytes, _context: Any) -> bytes:
        return asyncio.run_coroutine_threadsafe(dispatched(data), loop).result()

    server = grpc.server(ThreadPoolExecutor(64))
    server.add_generic_rpc_handlers((_handler(answer),))
    port: int = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port


@asynccontextmanager
async def _fastapi() -> AsyncIterator[int]:
    """The framework as its tutorial uses it."""
    app = FastAPI()

    @app.post("/v2/models/{session}/infer")
    async def infer(session: str, asked: Asked) -> dict[str, Any]:
        return {"model_name": session, "outputs": (await asked.json())["inputs"]}

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False, ws="none"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    task.cancel()


SERVERS = {
    "front-grpc": _front,
    "front-native": _front_native,
    "front-predict": _front,
    "front-http": _front_http,
    "servicer": _servicer,
    "unary": _unary,
    "bytes": _bytes,
    "threads": _threads,
    "fastapi": _fastapi,
}
