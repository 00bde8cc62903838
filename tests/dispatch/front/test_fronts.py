"""What all fronts share: addresses, tokens, certificates, limits on what is in progress, and how they end."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from tests.adapters.certificates import make_certificates
from tests.dispatch.clock import START, run
from tests.dispatch.fakes import FakeServer, bench
from tests.dispatch.front.echo import PATIENCE, Echo
from tuner.adapters.connection.identity import Identity, read_identity
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front import FrontConfig, Fronts, calls, intake
from tuner.dispatch.front import fronts as fronts_module
from tuner.dispatch.front.config import LARGEST_MESSAGE, GrpcServer
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Refused, Reply, Request, Tensor
from tuner.errors import InvalidInput

ANY = ("127.0.0.1", 0)
INFER = "/inference.GRPCInferenceService/ModelInfer"
READY = "/inference.GRPCInferenceService/ServerReady"
TOKEN = "0123456789abcdef"


def question(session: str = "echo") -> bytes:
    message = service_pb2.ModelInferRequest(model_name=session)
    message.inputs.add(name="x", datatype="INT8", shape=[1])
    message.raw_input_contents.append(b"\1")
    return bytes(message.SerializeToString())


async def ask(channel: Any, session: str = "echo", **options: Any) -> str:
    """Return the status of an inference."""
    try:
        await channel.unary_unary(INFER)(question(session), **{"timeout": PATIENCE, **options})
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


def place(address: tuple[str, int] | None) -> str:
    assert address is not None
    return f"{address[0]}:{address[1]}"


def get(connection: HTTPConnection, path: str, **headers: str) -> int:
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def post(connection: HTTPConnection, body: str) -> int:
    try:
        connection.request("POST", "/v2/models/m/infer", body)
        return connection.getresponse().status
    finally:
        connection.close()


async def until(event: Any) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


def test_a_token_is_needed_where_there_is_one(grpc_server: GrpcServer) -> None:
    """Whoever only asks whether it is ready needs none."""

    async def live() -> None:
        async with Fronts(
            Echo(), FrontConfig(grpc=ANY, grpc_server=grpc_server, http=ANY, token=TOKEN)
        ) as fronts:
            async with grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel:
                assert await ask(channel) == "UNAUTHENTICATED"
                for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, ""):
                    assert await ask(channel, metadata=[("authorization", wrong)]) == "UNAUTHENTICATED"
                assert await ask(channel, metadata=[("authorization", f"Bearer {TOKEN}")]) == "OK"
                assert await channel.unary_unary(READY)(b"", timeout=PATIENCE)
            for header, code in ((f"Bearer {TOKEN}", 200), ("Bearer é", 401), ("", 401)):
                connection = HTTPConnection(place(fronts.http_address), timeout=PATIENCE)
                assert await asyncio.to_thread(get, connection, "/v2", Authorization=header) == code
            connection = HTTPConnection(place(fronts.http_address), timeout=PATIENCE)
            assert await asyncio.to_thread(get, connection, "/v2/health/ready") == 200

    asyncio.run(live())


def test_connections_are_encrypted_and_clients_certified(tmp_path: Path) -> None:
    """Where there are certificates; strangers are not answered."""
    make_certificates(tmp_path)
    authority = (tmp_path / "ca.crt").read_bytes()
    pair = [(tmp_path / f"client.{kind}").read_bytes() for kind in ("key", "crt")]
    config = FrontConfig(
        grpc=ANY,
        http=ANY,
        identity=read_identity(tmp_path / "server.crt", tmp_path / "server.key", tmp_path / "ca.crt"),
    )

    async def live() -> None:
        async with Fronts(Echo(), config) as fronts:
            known, stranger = (
                grpc.ssl_channel_credentials(authority, *pair),
                grpc.ssl_channel_credentials(authority),
            )
            async with grpc.aio.secure_channel(place(fronts.grpc_address), known) as channel:
                assert await ask(channel) == "OK"
            async with grpc.aio.secure_channel(place(fronts.grpc_address), stranger) as channel:
                assert await ask(channel) == "UNAVAILABLE"
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            unknown = HTTPSConnection(place(fronts.http_address), context=context, timeout=PATIENCE)
            with pytest.raises(OSError, match=r"(?i)certificate|reset|broken|closed"):
                await asyncio.to_thread(get, unknown, "/v2")
            context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
            certified = HTTPSConnection(place(fronts.http_address), context=context, timeout=PATIENCE)
            assert await asyncio.to_thread(get, certified, "/v2") == 200

    asyncio.run(live())


def test_too_many_requests_are_refused(grpc_server: GrpcServer) -> None:
    """Those in progress go on, and a place that becomes free is taken."""

    async def live() -> None:
        service = Echo()
        async with (
            Fronts(service, FrontConfig(grpc=ANY, grpc_server=grpc_server, most_requests=1)) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            first = asyncio.create_task(ask(channel, "slow"))
            await until(service.waiting)
            assert await ask(channel) == "RESOURCE_EXHAUSTED"
            first.cancel()
            await until(service.cancelled)
            assert await ask(channel) == "OK"

    asyncio.run(live())


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch, grpc_server: GrpcServer) -> None:
    """What they hold in memory is bounded, too."""
    monkeypatch.setattr(intake, "MOST_BYTES", 0)

    async def live() -> str:
        async with (
            Fronts(Echo(), FrontConfig(grpc=ANY, grpc_server=grpc_server)) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            return await ask(channel)

    assert asyncio.run(live()) == "RESOURCE_EXHAUSTED"


def test_bodies_take_room_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that announce bodies and send little keep nobody out; those that send much are refused."""
    monkeypatch.setattr(intake, "MOST_BYTES", 2 * LARGEST_MESSAGE)
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\n"

    async def live() -> None:
        async with (
            Fronts(Echo(), FrontConfig(grpc=ANY, http=ANY)) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            assert fronts.http_address is not None
            announced = (b"Content-Length: %d" % LARGEST_MESSAGE, b"Transfer-Encoding: chunked")
            clients = [await asyncio.open_connection(*fronts.http_address) for _ in announced]
            for (_, writer), length in zip(clients, announced, strict=True):
                writer.write(head + length + b"\r\n\r\n")
                await writer.drain()
            assert await asyncio.to_thread(get, HTTPConnection(place(fronts.http_address)), "/v2") == 200
            assert await ask(channel) == "OK"
            monkeypatch.setattr(intake, "MOST_BYTES", 20_000)
            reader, writer = clients[0]
            writer.write(bytes(20_001))
            assert b"429" in await reader.readline()
            assert await ask(channel) == "OK"
            for _, writer in clients:
                writer.close()

    asyncio.run(live())


LARGE = Tensor("y", "INT8", (20_000_000,), bytes(20_000_000))


@dataclass
class Answering(FakeServer):
    """Answers each request with one tensor."""

    output: Tensor = LARGE

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        return Reply((self.output,), "1")


async def counted(
    output: Tensor, config: FrontConfig, asked: Callable[[Fronts], Awaitable[object]]
) -> tuple[object, int, int]:
    """Return what came of a request that is answered so, and how many were counted as answered and not."""
    found, metrics = bench({"slo_ms": 60_000.0}, servers=1), Metrics()
    found.servers["a:1"] = Answering("a:1", output=output)
    dispatcher = Dispatcher(found.config, found.connect, metrics, found.warnings.append)
    await dispatcher.start()
    async with Fronts(dispatcher, config) as fronts:
        said = await asked(fronts)
    await dispatcher.close()
    return said, metrics.totals.requests, metrics.totals.failures


def test_an_answer_that_is_too_large_counts_as_none(grpc_server: GrpcServer) -> None:
    """Its client gets an error, and whoever looks at the totals sees that."""

    async def asked(fronts: Fronts) -> str:
        options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(place(fronts.grpc_address), options=options) as channel:
            return await ask(channel, "m")

    config = FrontConfig(grpc=ANY, grpc_server=grpc_server)
    assert asyncio.run(counted(LARGE, config, asked)) == ("RESOURCE_EXHAUSTED", 0, 1)
    config = replace(config, largest_message=30_000_000)
    assert asyncio.run(counted(LARGE, config, asked)) == ("OK", 1, 0)


@pytest.mark.parametrize(
    ("output", "binary", "code"),
    [
        (Tensor("y", "FP32", (1, 200_000), bytes(800_000)), False, 400),
        (Tensor("y", "FP32", (1, 200_000), bytes(800_000)), True, 200),
        (Tensor("y", "BYTES", (1, 1), b"\1\0\0\0\xff"), False, 400),
        (LARGE, True, 413),
        (Tensor("y", "FP32", (1, 2), b"odd"), False, 500),
    ],
)
def test_an_answer_that_cannot_be_written_over_http_counts_as_none(
    output: Tensor, binary: bool, code: int
) -> None:
    """Nor what JSON cannot hold, nor what a server has sent broken."""
    tensor = {"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}
    body = json.dumps({"parameters": {"binary_data_output": binary}, "inputs": [tensor]})

    async def asked(fronts: Fronts) -> int:
        connection = HTTPConnection(place(fronts.http_address), timeout=PATIENCE)
        return await asyncio.to_thread(post, connection, body)

    answered = code == 200
    assert asyncio.run(counted(output, FrontConfig(http=ANY), asked)) == (code, answered, not answered)


def test_draining_answers_what_is_in_progress(grpc_server: GrpcServer) -> None:
    """New requests are refused, and those that ask hear that it is not ready."""

    async def live() -> None:
        service = Echo()
        async with (
            Fronts(service, FrontConfig(grpc=ANY, grpc_server=grpc_server, http=ANY)) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            first = asyncio.create_task(ask(channel, "slow"))
            await until(service.waiting)
            assert not await fronts.drain(0.05)
            assert await ask(channel) == "UNAVAILABLE"
            answer = service_pb2.ServerReadyResponse.FromString(await channel.unary_unary(READY)(b""))
            assert not answer.ready
            connection = HTTPConnection(place(fronts.http_address), timeout=PATIENCE)
            assert await asyncio.to_thread(get, connection, "/v2/health/ready") == 503
            first.cancel()
            assert await fronts.drain(PATIENCE)

    asyncio.run(live())


@pytest.mark.parametrize("tls", [False, True])
def test_what_was_answered_is_written_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """Whoever reads slowly gets a large answer whole; connections without a request do not hold it up."""
    monkeypatch.setattr(fronts_module, "LAST_WRITES", PATIENCE)
    size = 15_000_000  # more than the sockets hold
    tensor = {"name": "x", "datatype": "INT8", "shape": [size], "parameters": {"binary_data_size": size}}
    asked = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [tensor]}).encode()
    head = (
        f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(asked) + size}\r\n"
        f"Inference-Header-Content-Length: {len(asked)}\r\n\r\n"
    ).encode()
    config, context = FrontConfig(grpc=ANY, http=ANY), None
    if tls:
        make_certificates(tmp_path)
        config = replace(
            config, identity=read_identity(tmp_path / "server.crt", tmp_path / "server.key", None)
        )
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))

    async def live() -> None:
        service = Echo()
        fronts = Fronts(service, config)
        await fronts.start()
        assert fronts.http_address is not None
        reader, writer = await asyncio.open_connection(*fronts.http_address, ssl=context)
        idle, unused = await asyncio.open_connection(*fronts.http_address, ssl=context)
        writer.write(head + asked + bytes(size))
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        assert await fronts.drain(PATIENCE)

        stopping = asyncio.create_task(fronts.stop())

        assert await idle.read() == b""
        assert not stopping.done()
        assert len(await reader.read()) > size
        await stopping
        for one in (writer, unused):
            one.close()

    asyncio.run(live())


def test_whoever_does_not_read_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seconds are enough."""
    monkeypatch.setattr(fronts_module, "LAST_WRITES", 0.2)

    async def live() -> None:
        service = Echo()
        fronts = Fronts(service, FrontConfig(http=ANY))
        await fronts.start()
        assert fronts.http_address is not None
        _, writer = await asyncio.open_connection(*fronts.http_address)
        body = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
        head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        await until(service.waiting)
        assert not await fronts.drain(0.05)
        async with asyncio.timeout(PATIENCE):
            await fronts.stop()
        await until(service.cancelled)
        writer.close()

    asyncio.run(live())


def test_stopping_withdraws_what_is_in_progress(grpc_server: GrpcServer) -> None:
    """Over both protocols; the addresses are free again."""

    async def live() -> None:
        for protocol in ("grpc", "http"):
            service = Echo()
            fronts = Fronts(service, FrontConfig(grpc=ANY, grpc_server=grpc_server, http=ANY))
            await fronts.start()
            if protocol == "grpc":
                channel = grpc.aio.insecure_channel(place(fronts.grpc_address))
                asking: asyncio.Task[Any] = asyncio.create_task(ask(channel, "slow"))
            else:
                body = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
                connection = HTTPConnection(place(fronts.http_address), timeout=PATIENCE)
                connection.request("POST", "/v2/models/slow/infer", body)
            await until(service.waiting)
            await fronts.stop()
            await until(service.cancelled)
            if protocol == "grpc":
                assert await asking in ("CANCELLED", "UNAVAILABLE")
                await channel.close()
            connection_of = fronts.http_address if protocol == "http" else fronts.grpc_address
            assert connection_of is not None
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(connection_of)
        connection.close()

    asyncio.run(live())


def test_a_client_over_tls_that_says_no_more_withdraws_its_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection ends, and asyncio has nothing to warn of."""
    make_certificates(tmp_path)
    identity = read_identity(tmp_path / "server.crt", tmp_path / "server.key", None)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    body = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})

    async def live() -> None:
        service = Echo()
        async with Fronts(service, FrontConfig(http=ANY, identity=identity)) as fronts:
            connection = HTTPSConnection(place(fronts.http_address), context=context, timeout=PATIENCE)
            await asyncio.to_thread(connection.request, "POST", "/v2/models/slow/infer", body)
            await until(service.waiting)
            connection.close()
            await until(service.cancelled)

    asyncio.run(live())
    assert "eof_received" not in caplog.text


def test_a_call_without_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the client says no more, or says nothing at all."""
    monkeypatch.setattr(calls, "LONGEST_WAIT", 0.1)

    async def live() -> None:
        async with (
            Fronts(Echo(), FrontConfig(grpc=ANY)) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            for ends, code in ((True, "INVALID_ARGUMENT"), (False, "DEADLINE_EXCEEDED")):
                call = channel.stream_unary(INFER)()
                if ends:
                    await call.done_writing()
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await call
                assert failure.value.code().name == code
            assert await ask(channel) == "OK"

    asyncio.run(live())


def test_each_call_gets_the_whole_time_for_its_message() -> None:
    """Whoever has waited too long is refused; others that began later go on, and may still be cancelled."""

    async def message(after: float) -> bytes:
        await asyncio.sleep(after)
        return b"x"

    async def live() -> list[object]:
        patience, loop = calls.Patience(), asyncio.get_running_loop()
        waiting = []
        for after in (5.0, 20.0, 9.0, 20.0):
            waiting.append(loop.create_task(patience.wait(message(after))))
            await asyncio.sleep(3.0)
        waiting[-1].cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        return [*found, loop.time() - START]

    quick, late, slow, gone, seconds = run(live())

    assert (quick, slow) == (b"x", b"x")
    assert isinstance(late, Refused)
    assert isinstance(gone, asyncio.CancelledError)
    assert seconds == pytest.approx(15.0)


def test_a_long_header_is_refused() -> None:
    """Others on the same connection are answered."""

    async def live() -> None:
        async with (
            Fronts(Echo(), FrontConfig(grpc=ANY)) as fronts,
            grpc.aio.insecure_channel(place(fronts.grpc_address)) as channel,
        ):
            assert await ask(channel, metadata=[("x", "y" * 100_000)]) == "RESOURCE_EXHAUSTED"
            assert await ask(channel) == "OK"

    asyncio.run(live())


def test_an_address_that_is_taken_is_named(grpc_server: GrpcServer) -> None:
    """And what has been started is stopped."""

    async def live() -> None:
        taken = socket.create_server(ANY)
        address = taken.getsockname()[:2]
        with taken:
            for config in (
                FrontConfig(grpc=address, grpc_server=grpc_server),
                FrontConfig(grpc=ANY, grpc_server=grpc_server, http=address),
            ):
                fronts = Fronts(Echo(), config)
                with pytest.raises(InvalidInput, match=str(address[1])):
                    await fronts.start()
                if fronts.grpc_address is not None:
                    with pytest.raises(ConnectionRefusedError):
                        socket.create_connection(fronts.grpc_address)

    asyncio.run(live())


@pytest.mark.parametrize(
    "wrong",
    [
        {"identity": Identity(None, None, b"")},
        {"largest_message": 0},
        {"most_requests": 0},
        {"identity": Identity(b"a", b"b", None), "grpc_server": "native"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    """When they are made."""
    with pytest.raises(InvalidInput):
        FrontConfig(**wrong)
