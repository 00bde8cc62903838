"""The control port: what it shows, what it changes, and who may change it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from tests.dispatch.calls import reply_to
from tests.dispatch.clock import run as in_virtual_time
from tests.dispatch.fakes import FakeServer, bench, request
from tuner.dispatch.control import Control
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.metrics import Metrics
from tuner.errors import InvalidInput

TOKEN = "a token of many letters"


async def ask(control: Control, text: str) -> tuple[int, bytes]:
    """Send a request as it is written; return the status and the body of the answer."""
    reader, writer = await asyncio.open_connection(*control.address)
    writer.write(text.encode())
    data = b""
    async with asyncio.timeout(60):
        while b"\r\n\r\n" not in data:
            more = await reader.read(65536)
            assert more, "the connection was cut off"
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        while len(body) < length:
            body += await reader.read(65536)
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


def post(values: Any, *, token: str = TOKEN, more: str = "") -> str:
    body = values if isinstance(values, str) else json.dumps(values)
    return (
        f"POST /v1/knobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )


def get(path: str, host: str = "localhost:1") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"


async def unread() -> None:
    raise InvalidInput("dispatch.yaml line 3", "has a mistake")


async def controlled(
    token: str | None = TOKEN, host: str = "127.0.0.1"
) -> tuple[Control, Dispatcher, FakeServer]:
    found, metrics = bench({"slo_ms": 2000.0}, servers=1), Metrics()
    dispatcher = Dispatcher(found.config, found.connect, metrics, found.warnings.append)
    await dispatcher.start()
    control = await Control(dispatcher, metrics, token, host, unread).start(("127.0.0.1", 0))
    return control, dispatcher, found.servers["a:1"]


def test_what_it_shows_and_changes() -> None:
    """Metrics, health and state can be read by everybody; who has the token sets knobs while it works."""

    async def main() -> None:
        control, dispatcher, server = await controlled()
        await reply_to(dispatcher, request())
        status, page = await ask(control, get("/metrics"))
        assert status == 200
        assert b'servetune_dispatch_answers_total{session="m",status="ok"} 1.0' in page
        assert b'servetune_desired_accelerators{pool="m"} 1.0' in page
        assert (await ask(control, get("/readyz")))[0] == 200
        assert (await ask(control, get("/nothing")))[0] == 404
        assert (await ask(control, get("/metrics", "elsewhere")))[0] == 421
        state = json.loads((await ask(control, get("/v1/state")))[1])
        assert state["totals"]["requests"] == 1
        assert state["knobs"]["m.queue"] == 1000
        assert state["pools"]["m"]["desired"] == 1
        status, body = await ask(control, post({"deferral": 0.25, "policy": 1, "m.max_batch": 4}))
        assert status == 200
        assert json.loads(body)["deferral"] == 0.25
        assert dispatcher.pools[0].rules.policy == "eager"
        await asyncio.gather(*[reply_to(dispatcher, request()) for _ in range(9)])
        assert max(items for _, items in server.batches) <= 4
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.2", "127.0.0.2"), ("0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:0:1]")]
)
def test_a_loopback_address_answers_to_its_own_name(host: str, own: str) -> None:
    """Also where it is not the usual one; other names stay unanswered."""

    async def main() -> None:
        control, dispatcher, _ = await controlled(host=host)
        for name in (own, f"{own}:9000", "localhost", "127.0.0.1:9000", "[::1]"):
            assert (await ask(control, get("/metrics", name)))[0] == 200
        assert (await ask(control, get("/metrics", "elsewhere")))[0] == 421
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


def test_another_policy_is_compiled_while_requests_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that takes seconds holds up no request, and no other change overtakes it."""
    going, go = threading.Event(), threading.Event()

    def compiled(name: str, options: object) -> None:
        going.set()
        assert go.wait(60)

    monkeypatch.setattr("tuner.dispatch.knobs.compile_policy", compiled)

    async def main() -> None:
        control, dispatcher, _ = await controlled()
        first = asyncio.create_task(ask(control, post({"policy": 1})))
        while not going.is_set():
            await asyncio.sleep(0.01)
        second = asyncio.create_task(ask(control, post({"m.queue": 9})))
        await reply_to(dispatcher, request())
        assert (await ask(control, get("/healthz")))[0] == 200
        assert dispatcher.pools[0].rules.policy == "symphony"
        go.set()
        assert [(await one)[0] for one in (first, second)] == [200, 200]
        assert dispatcher.pools[0].rules.policy == "eager"
        assert control.state()["knobs"]["m.queue"] == 9
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


def test_a_change_may_take_as_long_as_its_client_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine compiles a policy for a minute."""

    async def slow(*_: object) -> None:
        await asyncio.sleep(55.0)

    async def main() -> None:
        control, dispatcher, _ = await controlled()
        monkeypatch.setattr(asyncio, "to_thread", slow)
        assert (await ask(control, post({"policy": 1})))[0] == 200
        await control.stop()
        await dispatcher.close()

    in_virtual_time(main())


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (post({"deferral": 0.5}, token="another"), 401),
        (post({"deferral": 0.5}, more="Origin: http://localhost\r\n"), 403),
        (post("{"), 400),
        (post("[" * 5000), 400),
        (post({"deferral": 0.5}).replace("application/json", "text/plain"), 415),
        (post('{"deferral": 0.5}' + " " * 16_384), 413),
        (post([1]), 422),
        (post({"deferral": True}), 422),
        (post('{"deferral": 1e999}'), 422),
        (post({"deferral": 2}), 422),
        (post({"nothing": 1}), 422),
        (post({"m.queue": 0}), 422),
        (post({"policy": 1, "drop_rule": 9}), 422),
        (post({"policy": 0.5}), 422),
        (post({}).replace("knobs", "reload"), 422),
        (post({}, token="another").replace("knobs", "reload"), 401),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        ("PUT /v1/knobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
    ],
)
def test_what_is_refused(text: str, status: int) -> None:
    """With the status for it; nothing changes."""

    async def main() -> None:
        control, dispatcher, _ = await controlled()
        before = control.state()["knobs"]
        assert (await ask(control, text))[0] == status
        assert control.state()["knobs"] == before
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (post({"m.queue": 0}), "0 cannot be used; give a whole number from 1 to 1000000"),
        (post({"m.max_batch": 1.5}), "give a whole number from 1 to 1024"),
        (post({"policy": 9}), "give the number of a policy: 0 symphony, 1 eager, "),
        (post({"deferral": 1}).replace("application/json", "text/plain"), "Content-Type: application/json"),
    ],
)
def test_a_refusal_says_what_can_be_used(text: str, said: str) -> None:
    """So that nobody has to look it up."""

    async def main() -> None:
        control, dispatcher, _ = await controlled()
        assert said in json.loads((await ask(control, text))[1])["detail"]
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


@pytest.mark.parametrize("path", ["knobs", "reload"])
def test_without_a_token_nothing_can_be_changed(path: str) -> None:
    """Whatever token who asks gives; the answer says what is missing."""

    async def main() -> None:
        control, dispatcher, _ = await controlled(None)
        before = control.state()["knobs"]
        for token in (TOKEN, "", "None"):
            status, body = await ask(control, post({"deferral": 0.5}, token=token).replace("knobs", path))
            assert status == 403
            assert b"give listen.control_token_file" in body
        assert control.state()["knobs"] == before
        assert (await ask(control, get("/v1/state")))[0] == 200
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


@pytest.mark.parametrize("authorization", ["", "Authorization: Bearer another\r\n"])
@pytest.mark.parametrize("path", ["knobs", "reload"])
def test_who_may_change_nothing_is_refused_before_the_body_is_read(path: str, authorization: str) -> None:
    """The answer comes although not a byte of the body does."""

    async def main() -> None:
        control, dispatcher, _ = await controlled()
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        async with asyncio.timeout(60):
            status, body = await ask(control, f"{head}{authorization}Content-Length: 16\r\n\r\n")
        assert status == 401
        assert b"the token is missing or wrong" in body
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())


def test_a_session_without_a_backend_is_not_ready() -> None:
    """The answer has its name; the dispatcher lives all the same."""

    async def main() -> None:
        control, dispatcher, server = await controlled()
        server.alive = False
        dispatcher.pools[0].servers[0].lost("a:1: connection reset")
        status, body = await ask(control, get("/readyz"))
        assert (status, json.loads(body)) == (503, {"detail": "no backend for m"})
        assert (await ask(control, get("/healthz")))[0] == 200
        await control.stop()
        await dispatcher.close()

    asyncio.run(main())
