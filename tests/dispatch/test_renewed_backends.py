"""Certificates by which a dispatcher reaches its backends are renewed while it runs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from tests.adapters.certificates import make_certificates
from tests.dispatch.calls import reply_to
from tests.dispatch.fakes import request
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.knobs import current, set_knobs
from tuner.dispatch.process import DispatchProcess
from tuner.dispatch.request import Reply
from tuner.errors import StorageError

SERVICE = "inference.GRPCInferenceService"


@dataclass
class Backend:
    """Speaks as much of Triton's protocol as a dispatcher needs, to whom it has certified."""

    shown: list[bytes] = field(default_factory=list)
    """The certificate that each batch came with."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while batches are answered."""
    address: str = ""

    async def ready(self, _message: bytes, _context: Any) -> bytes:
        return bytes(service_pb2.ModelReadyResponse(ready=True).SerializeToString())

    async def config(self, _message: bytes, _context: Any) -> bytes:
        answer = service_pb2.ModelConfigResponse()
        answer.config.max_batch_size = 8
        return bytes(answer.SerializeToString())

    async def infer(self, message: bytes, context: Any) -> bytes:
        self.shown.append(context.auth_context()["x509_pem_cert"][0])
        await self.held.wait()
        asked = service_pb2.ModelInferRequest.FromString(message)
        answer = service_pb2.ModelInferResponse(model_name="m", model_version="1")
        for one in asked.inputs:
            answer.outputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
        answer.raw_output_contents.extend(asked.raw_input_contents)
        return bytes(answer.SerializeToString())

    @asynccontextmanager
    async def listening(self, folder: Path) -> AsyncIterator[Backend]:
        methods = {"ModelReady": self.ready, "ModelConfig": self.config, "ModelInfer": self.infer}
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        key, certificate, ca = (
            (folder / name).read_bytes() for name in ("server.key", "server.crt", "ca.crt")
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
        self.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
        await server.start()
        self.held.set()
        try:
            yield self
        finally:
            await server.stop(None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates, and those of another client of the same authority, and of a stranger."""
    make_certificates(tmp_path)
    (tmp_path / "stranger").mkdir()
    make_certificates(tmp_path / "stranger")
    (tmp_path / "used").mkdir()
    use(tmp_path, tmp_path, "client")
    return tmp_path


def use(folder: Path, source: Path, name: str, *kinds: str) -> None:
    """Show what some files hold from now on."""
    for kind in kinds or ("crt", "key"):
        shutil.copy(source / f"{name}.{kind}", folder / "copy")
        (folder / "copy").replace(folder / "used" / f"client.{kind}")


@asynccontextmanager
async def dispatching(backend: Backend, folder: Path) -> AsyncIterator[tuple[DispatchProcess, list[str]]]:
    said: list[str] = []
    used = folder / "used"
    options = f"tls=grpc&ca={folder / 'ca.crt'}&cert={used / 'client.crt'}&key={used / 'client.key'}"
    session = {"name": "m", "slo_ms": 60_000.0, "backends": [f"triton://{backend.address}/m?{options}"]}
    config = DispatchConfig.model_validate({"listen": {"http": "127.0.0.1:0"}, "sessions": [session]})
    process, started = DispatchProcess(config, said.append), asyncio.Event()
    serving = asyncio.ensure_future(process.serve(started.set))
    await started.wait()
    try:
        yield process, said
    finally:
        process.stop()
        await serving


async def until(said: list[str], words: str) -> None:
    async with asyncio.timeout(60):
        while not any(words in sentence for sentence in said):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("reloaded", [False, True])
def test_batches_go_by_the_new_certificate(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reloaded: bool
) -> None:
    """By itself, or at a reload; what a backend has is answered, and by itself no knob changes."""
    monkeypatch.setattr("tuner.dispatch.process.LOOK", 3600.0 if reloaded else 0.05)

    async def live() -> None:
        async with Backend().listening(folder) as backend, dispatching(backend, folder) as (process, said):
            dispatcher = process.dispatcher
            assert isinstance(await reply_to(dispatcher, request()), Reply)
            await set_knobs(dispatcher.pools, {"deferral": 0.01, "m.queue": 7})
            backend.held.clear()
            open_one = asyncio.ensure_future(reply_to(dispatcher, request()))
            while len(backend.shown) < 2:
                await asyncio.sleep(0.01)
            use(folder, folder, "server")
            if reloaded:
                await process.reload()
            else:
                await until(said, "certificates for backends were renewed")
                knobs = current(dispatcher.pools)
                assert (knobs["deferral"], knobs["m.queue"]) == (0.01, 7)
            backend.held.set()
            assert isinstance(await open_one, Reply)
            assert isinstance(await reply_to(dispatcher, request()), Reply)
            client, server = ((folder / f"{name}.crt").read_bytes() for name in ("client", "server"))
            assert backend.shown == [client, client, server]
            pools = list(dispatcher.pools)
            await process.reload()
            assert dispatcher.pools == pools, "what was not renewed goes on"

    asyncio.run(live())


def test_certificates_that_cannot_be_used_leave_the_connections(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they do not belong together, or the backend does not know them."""
    monkeypatch.setattr("tuner.dispatch.process.LOOK", 0.05)

    async def live() -> None:
        async with Backend().listening(folder) as backend, dispatching(backend, folder) as (process, said):
            pools = list(process.dispatcher.pools)
            use(folder, folder / "stranger", "client", "crt")
            await until(said, "the certificate and the key do not belong together")
            with pytest.raises(StorageError, match="belong together"):
                await process.reload()
            with monkeypatch.context() as hasty:
                hasty.setattr(Dispatcher.reload, "__defaults__", (1.0,))
                use(folder, folder / "stranger", "client", "key")
                await until(said, "the connections stay: backends of m")
            assert process.dispatcher.pools == pools
            assert isinstance(await reply_to(process.dispatcher, request()), Reply)
            assert sum("not renewed" in sentence for sentence in said) == 2
            use(folder, folder, "server")
            await until(said, "certificates for backends were renewed")
            assert isinstance(await reply_to(process.dispatcher, request()), Reply)

    asyncio.run(live())
