"""Certificates and tokens are renewed while a dispatcher runs, and nobody is cut off."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection, HTTPSConnection
from operator import lt
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.adapters.certificates import make_certificates
from tests.adapters.mounted import mount
from tests.dispatch.fakes import FakeServer
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.process import DispatchProcess
from tuner.errors import StorageError

METADATA = "/inference.GRPCInferenceService/ModelReady"
SERVER = "/inference.GRPCInferenceService/ServerMetadata"
FIRST, SECOND = "the first of tokens", "the second of tokens"
PATIENCE = 60.0
"""How long a busy machine may take for anything that is waited for, s."""


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders of certificates, whose authorities do not know each other."""
    folders = [tmp_path_factory.mktemp(name) for name in ("old", "new")]
    for folder in folders:
        make_certificates(folder)
    return folders


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: FakeServer("a:1"))
    monkeypatch.setattr("tuner.dispatch.process.LOOK", 0.02)


def install(place: Path, source: Path, *names: str) -> None:
    """Replace the files in a folder, each at once."""
    for name in names or ("server.crt", "server.key", "ca.crt"):
        shutil.copy(source / name, place / "copy")
        (place / "copy").replace(place / name)


def write_token(path: Path, token: str) -> None:
    path.touch(0o600)
    path.write_text(token)


class Running:
    """A dispatcher, and clients of it."""

    def __init__(self, process: DispatchProcess, said: list[str]) -> None:
        self.process = process
        self.said = said

    def channel(self, folder: Path, *, certified: bool = False) -> Any:
        """A gRPC channel with a connection of its own, for whom a folder's authority vouches."""
        pair = [(folder / f"client.{kind}").read_bytes() for kind in ("key", "crt")] if certified else []
        credentials = grpc.ssl_channel_credentials((folder / "ca.crt").read_bytes(), *pair)
        assert self.process.fronts.grpc_address is not None
        place = "{}:{}".format(*self.process.fronts.grpc_address)
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(place, credentials, options=options)

    def browser(self, folder: Path, *, certified: bool = False) -> HTTPSConnection:
        """Likewise a connection over HTTP."""
        context = ssl.create_default_context(cafile=folder / "ca.crt")
        if certified:
            context.load_cert_chain(folder / "client.crt", folder / "client.key")
        assert self.process.fronts.http_address is not None
        return HTTPSConnection(*self.process.fronts.http_address, context=context, timeout=PATIENCE)

    async def lets_in(self, folder: Path, *, certified: bool = False) -> tuple[bool, bool]:
        """Whether new connections are answered, over gRPC and over HTTP."""
        async with self.channel(folder, certified=certified) as channel:
            over_grpc = await called(channel) == "OK"
        with closing(self.browser(folder, certified=certified)) as browser:
            try:
                return over_grpc, await asyncio.to_thread(got, browser) == 200
            except OSError:
                return over_grpc, False

    async def until(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(words in sentence for sentence in self.said):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(**listen: object) -> AsyncIterator[Running]:
    said: list[str] = []
    session = {"name": "m", "slo_ms": 5000.0, "backends": ["triton://a:1/m"]}
    listen = {name: str(value) for name, value in {"http": "127.0.0.1:0", **listen}.items()}
    config = DispatchConfig.model_validate({"listen": listen, "sessions": [session]})
    process, started = DispatchProcess(config, said.append), asyncio.Event()
    serving = asyncio.ensure_future(process.serve(started.set))
    await started.wait()
    try:
        yield Running(process, said)
    finally:
        process.stop()
        await serving


async def called(channel: Any, token: str = "") -> str:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    try:
        await channel.unary_unary(SERVER)(b"", timeout=PATIENCE, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


def got(connection: HTTPConnection, path: str = "/v2", method: str = "GET", token: str = "") -> int:
    connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def tls(place: Path, *, certified: bool = False) -> dict[str, object]:
    """What a file says that listens for both protocols over TLS."""
    files: dict[str, object] = {"certificate": place / "server.crt", "key": place / "server.key"}
    return {"grpc": "127.0.0.1:0", **files, **({"client_ca": place / "ca.crt"} if certified else {})}


@pytest.mark.parametrize("certified", [False, True])
def test_new_connections_get_the_new_certificate(
    tmp_path: Path, authorities: list[Path], certified: bool
) -> None:
    """Open ones go on, also those whose authority is gone by now."""
    old, new = authorities
    install(tmp_path, old)

    async def live() -> None:
        async with running(**tls(tmp_path, certified=certified)) as one:
            with closing(one.browser(old, certified=certified)) as browser:
                async with one.channel(old, certified=certified) as channel:
                    assert await called(channel) == "OK"
                    assert await asyncio.to_thread(got, browser) == 200
                    assert await one.lets_in(new, certified=certified) == (False, False)
                    install(tmp_path, new)
                    await one.until("listen.certificate was renewed")
                    assert await one.lets_in(new, certified=certified) == (True, True)
                    assert await one.lets_in(old, certified=certified) == (False, False)
                    assert await called(channel) == "OK"
                    socket = browser.sock
                    assert await asyncio.to_thread(got, browser) == 200
                    assert browser.sock is socket, "the connection of before"

    asyncio.run(live())


def test_clients_of_an_authority_that_is_gone_are_not_let_in(tmp_path: Path, authorities: list[Path]) -> None:
    """It may be gone because its clients are to be kept out; also who resumes a session of TLS is."""
    old, new = authorities
    install(tmp_path, old)

    async def live() -> None:
        async with running(**tls(tmp_path, certified=True)) as one:
            context = ssl.create_default_context(cafile=old / "ca.crt")
            context.load_cert_chain(old / "client.crt", old / "client.key")
            context.maximum_version = ssl.TLSVersion.TLSv1_2  # its session is there after the handshake
            assert one.process.fronts.http_address is not None
            address = one.process.fronts.http_address

            def resumed(session: ssl.SSLSession | None) -> tuple[bool | None, ssl.SSLSession | None]:
                with closing(HTTPConnection(*address, timeout=PATIENCE)) as connection:
                    connection.connect()
                    connection.sock = context.wrap_socket(
                        connection.sock, server_hostname=address[0], session=session
                    )
                    assert got(connection) == 200
                    return connection.sock.session_reused, connection.sock.session

            _, session = await asyncio.to_thread(resumed, None)
            assert (await asyncio.to_thread(resumed, session))[0], "a session is resumed"
            install(tmp_path, new, "ca.crt")
            await one.until("listen.certificate was renewed")
            for known in (session, None):
                with pytest.raises(OSError, match=r"(?i)certificate|alert|reset|broken|closed|eof"):
                    await asyncio.to_thread(resumed, known)

    asyncio.run(live())


def test_nothing_is_lost_while_certificates_are_renewed(tmp_path: Path, authorities: list[Path]) -> None:
    """Clients come all the time, each with a connection of its own."""
    old, new = authorities
    install(tmp_path, old)
    trusting = tmp_path / "trusting"
    trusting.mkdir()
    (trusting / "ca.crt").write_bytes(b"".join((folder / "ca.crt").read_bytes() for folder in authorities))
    both = ssl.create_default_context(cafile=trusting / "ca.crt")

    async def live() -> None:
        async with running(**tls(tmp_path)) as one:
            ended = asyncio.Event()
            assert one.process.fronts.http_address is not None
            address = one.process.fronts.http_address

            def once() -> int:
                with closing(HTTPSConnection(*address, context=both, timeout=PATIENCE)) as connection:
                    return got(connection)

            async def come(found: list[object]) -> None:
                while not ended.is_set():
                    found.append(await asyncio.to_thread(once))
                    async with one.channel(trusting) as channel:
                        found.append(await called(channel))

            answers: list[list[object]] = [[] for _ in range(4)]
            clients = [asyncio.ensure_future(come(found)) for found in answers]
            for source in (new, old) * 4:
                one.said.clear()
                install(tmp_path, source)
                await one.until("was renewed")
                # The first of three answers may be of a connection from before the renewal.
                wanted = [len(found) + 3 for found in answers]
                async with asyncio.timeout(PATIENCE):
                    while any(map(lt, map(len, answers), wanted)) and not any(one.done() for one in clients):
                        await asyncio.sleep(0.01)
            ended.set()
            await asyncio.gather(*clients)
            assert {answer for found in answers for answer in found} == {200, "OK"}

    asyncio.run(live())


def test_a_file_that_cannot_be_used_leaves_the_old_ones(tmp_path: Path, authorities: list[Path]) -> None:
    """One warning names it, and a reload is refused; once it is right, it is taken."""
    old, new = authorities
    install(tmp_path, old)

    async def live() -> None:
        async with running(**tls(tmp_path)) as one:
            install(tmp_path, new, "server.crt")
            await one.until("do not belong together")
            await asyncio.sleep(0.2)
            warnings = [sentence for sentence in one.said if "belong together" in sentence]
            files = f"{tmp_path / 'server.crt'} and {tmp_path / 'server.key'}"
            assert warnings == [
                f"{files}: the certificate and the key do not belong together; "
                "what was read before stays in use"
            ]
            assert await one.lets_in(old) == (True, True)
            with pytest.raises(StorageError, match="belong together"):
                await one.process.reload()
            (tmp_path / "server.key").write_bytes((new / "server.key").read_bytes()[:100])
            await one.until("server.key: is no key")
            assert await one.lets_in(old) == (True, True)
            install(tmp_path, new, "server.key")
            await one.until("listen.certificate was renewed")
            assert await one.lets_in(new) == (True, True)

    asyncio.run(live())


def test_a_reload_takes_them_at_once(
    tmp_path: Path, authorities: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who renews them may say so."""
    monkeypatch.setattr("tuner.dispatch.process.LOOK", 3600.0)
    old, new = authorities
    install(tmp_path, old)

    async def live() -> None:
        async with running(**tls(tmp_path)) as one:
            install(tmp_path, new)
            assert await one.lets_in(old) == (True, True)
            await one.process.reload()
            assert await one.lets_in(new) == (True, True)
            assert any("listen.certificate was renewed" in sentence for sentence in one.said)

    asyncio.run(live())


def test_files_that_kubernetes_renews(tmp_path: Path, authorities: list[Path]) -> None:
    """They are links, whose folder is another one after a renewal; the old one is gone."""
    old, new = authorities

    def renew(source: Path) -> None:
        mount(tmp_path, **{name: (source / f"server.{name}").read_bytes() for name in ("crt", "key")})

    renew(old)

    async def live() -> None:
        async with running(grpc="127.0.0.1:0", certificate=tmp_path / "crt", key=tmp_path / "key") as one:
            assert await one.lets_in(old) == (True, True)
            renew(new)
            await one.until("was renewed")
            assert await one.lets_in(new) == (True, True)

    asyncio.run(live())


def test_tokens_are_renewed(tmp_path: Path) -> None:
    """Of clients over both protocols, and of operators; on connections that are open, too."""
    clients, operators = tmp_path / "clients", tmp_path / "operators"
    write_token(clients, FIRST)
    write_token(operators, "operators " + FIRST)

    async def live() -> None:
        listen = {"token_file": clients, "control_token_file": operators, "control": "127.0.0.1:0"}
        async with running(grpc="127.0.0.1:0", **listen) as one:
            fronts, control = one.process.fronts, one.process.control
            assert fronts.grpc_address is not None
            assert fronts.http_address is not None
            place = "{}:{}".format(*fronts.grpc_address)

            async def answers(token: str) -> list[object]:
                change = ("/v1/reload", "POST", f"operators {token}")
                return [
                    await called(channel, token),
                    await asyncio.to_thread(got, http, "/v2", "GET", token),
                    await asyncio.to_thread(got, port, *change),
                ]

            with (
                closing(HTTPConnection(*fronts.http_address, timeout=PATIENCE)) as http,
                closing(HTTPConnection(*control.address, timeout=PATIENCE)) as port,
            ):
                async with grpc.aio.insecure_channel(place) as channel:
                    assert await answers(FIRST) == ["OK", 200, 200]
                    write_token(clients, SECOND)
                    write_token(operators, "operators " + SECOND)
                    await one.until("listen.token_file was renewed")
                    await one.until("listen.control_token_file was renewed")
                    assert await answers(SECOND) == ["OK", 200, 200]
                    assert await answers(FIRST) == ["UNAUTHENTICATED", 401, 401]

    asyncio.run(live())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_text(""), "is empty"),
        (lambda path: path.write_text("short"), "needs at least 16"),
        (lambda path: path.chmod(0o644), "can be read by everybody"),
        (os.unlink, "cannot be read"),
    ],
)
def test_a_token_that_cannot_be_used_leaves_the_old_one(
    tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    """An empty file lets nobody in without a token."""
    write_token(tmp_path / "token", FIRST)

    async def live() -> None:
        async with running(token_file=tmp_path / "token") as one:
            assert one.process.fronts.http_address is not None
            spoil(tmp_path / "token")
            await one.until(words)
            assert any(str(tmp_path / "token") in sentence for sentence in one.said)
            with closing(HTTPConnection(*one.process.fronts.http_address, timeout=PATIENCE)) as http:
                assert await asyncio.to_thread(got, http, token=FIRST) == 200
                assert await asyncio.to_thread(got, http) == 401

    asyncio.run(live())
