"""The gRPC server in Rust, where it is not like the other one."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from tests.dispatch.front.echo import PATIENCE, Echo
from tests.dispatch.front.test_fronts import ANY, INFER, ask, place, until
from tuner.adapters.embedded.server import free_ports
from tuner.dispatch.client import AsyncGrantClient
from tuner.dispatch.front import FrontConfig, Fronts
from tuner.dispatch.front import fronts as fronts_module
from tuner.dispatch.front.inference import InferenceService
from tuner.dispatch.front.native_server import NativeServer
from tuner.dispatch.request import Reply, Request
from tuner.errors import InvalidInput
from tuner.plugin import missing_extra

pytest.importorskip("pygrpc_native", reason="needs pygrpc-native")

NATIVE = FrontConfig(grpc=ANY, grpc_server="native")


def test_a_call_without_a_message_is_refused() -> None:
    """By the server itself, which knows another status for it."""

    async def live() -> None:
        async with (
            Fronts(Echo(), NATIVE) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            call = channel.stream_unary(INFER)()
            await call.done_writing()
            with pytest.raises(grpc.aio.AioRpcError, match="INTERNAL"):
                await call
            assert await ask(channel) == "OK"

    asyncio.run(live())


def test_a_long_header_ends_the_connection() -> None:
    """Clients connect again."""

    async def live() -> None:
        async with (
            Fronts(Echo(), NATIVE) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            assert await ask(channel, metadata=[("x", "y" * 100_000)]) in (
                "UNAVAILABLE",
                "RESOURCE_EXHAUSTED",
            )
            assert await ask(channel, wait_for_ready=True) == "OK"

    asyncio.run(live())


def test_conversations_and_streams_go_to_the_server_behind() -> None:
    """Grants work, and what is not offered says so in the same words."""

    async def live() -> None:
        service = Echo()
        async with Fronts(service, NATIVE, service) as fronts:
            address = place(fronts.grpc_address)
            async with AsyncGrantClient(address) as client, client.grant("echo", items=3) as granted:
                assert (granted.address, granted.model) == ("backend:1", "model")
            assert service.asks[0].items == 3
            async with grpc.aio.insecure_channel(address) as channel:
                stream = channel.stream_stream(INFER.replace("ModelInfer", "ModelStreamInfer"))
                with pytest.raises(grpc.aio.AioRpcError, match="is not offered"):
                    async for _ in stream(iter([b""])):
                        pass

    asyncio.run(live())


def test_what_was_answered_is_written_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an answer that is large, and is given while the dispatcher ends."""
    monkeypatch.setattr(fronts_module, "LAST_WRITES", PATIENCE)
    size = 15_000_000
    message = service_pb2.ModelInferRequest(model_name="echo")
    message.inputs.add(name="x", datatype="INT8", shape=[size])
    message.raw_input_contents.append(bytes(size))
    ending = asyncio.Event()

    class Waiting(Echo):
        async def infer(self, request: Request, write: Callable[[Reply], bytes]) -> bytes:
            self.waiting.set()
            await ending.wait()
            return await super().infer(request, write)

    async def live() -> int:
        service = Waiting()
        fronts = Fronts(service, NATIVE)
        await fronts.start()
        options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(place(fronts.grpc_address), options=options) as channel:
            asking = asyncio.ensure_future(
                channel.unary_unary(INFER)(message.SerializeToString(), timeout=PATIENCE)
            )
            await until(service.waiting)
            draining = asyncio.ensure_future(fronts.drain(PATIENCE))
            ending.set()
            assert await draining
            await fronts.stop()
            return len(await asking)

    assert asyncio.run(live()) > size


def test_nothing_is_left_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket to the server behind lies in a folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def live() -> None:
        async with Fronts(Echo(), NATIVE):
            assert [one.name for one in tmp_path.glob("*/*")] == ["other-calls"]

    asyncio.run(live())

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["missing", "long" * 30])
def test_no_place_for_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """The error says what to do, and nothing listens any more."""
    if folder != "missing":
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / folder))
    (port,) = free_ports(1)

    async def live() -> None:
        with pytest.raises(InvalidInput, match="TMPDIR"):
            await Fronts(Echo(), replace(NATIVE, grpc=("127.0.0.1", port))).start()

    asyncio.run(live())

    socket.create_server(("127.0.0.1", port)).close()
    assert not [*tmp_path.glob("*/*")]


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything listens."""
    monkeypatch.setitem(sys.modules, "pygrpc_native", None)
    monkeypatch.delitem(sys.modules, NativeServer.__module__)

    with pytest.raises(ModuleNotFoundError) as failure:
        asyncio.run(Fronts(Echo(), NATIVE).start())

    assert "pip install '.[native]'" in missing_extra(failure.value)


def test_a_defect_is_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hears that it failed, and not how."""

    async def fail(*_: Any) -> bytes:
        raise RuntimeError("a secret")

    monkeypatch.setattr(InferenceService, "_infer", fail)

    async def live() -> None:
        async with (
            Fronts(Echo(), NATIVE) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="its log says why") as failure:
                await channel.unary_unary(INFER)(b"", timeout=PATIENCE)
            assert failure.value.code() is grpc.StatusCode.INTERNAL
            assert "secret" not in str(failure.value)

    asyncio.run(live())
