"""Requests made to break the web server, or to keep others out of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")
pytest.importorskip("uvicorn", reason="needs fastapi and uvicorn")

from fastapi import HTTPException

from tests.control.daemon.daemon_bed import Bed
from tests.control.web.site import TOKEN, Site
from tests.waiting import LONGEST, eventually
from tuner.control.web import api as api_module
from tuner.control.web.access import LONGEST_BODY, MOST_REQUESTS, PROBES, Gate
from tuner.web import open_files
from tuner.web.connection import MOST_CONNECTIONS, Connection
from tuner.web.seldom import MOST_MESSAGES, Seldom

Receive = Callable[[], Awaitable[dict[str, Any]]]


@pytest.fixture
def site(bed: Bed) -> Iterator[Site]:
    """One target that is changed."""
    bed.write(("a", "apply", ""))
    with Site(bed) as site:
        eventually(lambda: site.daemon.workers["a"].turns > 0)
        yield site


def connected(site: Site) -> socket.socket:
    """A bare connection."""
    place = urlsplit(site.web.address)
    return socket.create_connection((place.hostname, place.port), timeout=LONGEST)  # type: ignore[arg-type]


def head(path: str = "/api/targets/a/pause", **headers: str | None) -> bytes:
    """The head of an order, with the token."""
    given: dict[str, Any] = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Authorization": f"Bearer {TOKEN}",
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode()


def answered(connection: socket.socket) -> int:
    """The status that comes back."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status


BODIES = [
    ("pause", rb'{"why":"\ud800"}', 422),
    ("pause", rb'{"\ud800":1}', 422),
    ("pause", rb'{"x":1e999}', 422),
    ("pause", rb"1e999", 422),
    ("pause", rb"[" * 5000, (400, 422)),
    ("pause", rb'{"why":' + b"9" * 5000 + b"}", (400, 422)),
    ("pause", b"\xff\xfe\x00", (400, 422)),
    ("resume", rb'{"x":NaN}', 422),
    ("pin", rb'{"set":{"a":NaN}}', 422),
    ("pin", rb'{"set":{"max_batch_size":1e999}}', 422),
    ("pin", rb'{"set":{"max_batch_size":1' + b"0" * 400 + rb"}}", 422),
    ("pin", rb'{"set":{"\ud800":1}}', 422),
    ("pin", rb'{"set":{"a\u0000\u202e":1}}', 409),
    ("pin", rb'{"set":["\ud800"]}', 422),
    ("pin", rb'{"set":{"max_batch_size":true}}', 422),
    ("pin", rb'{"set":{"max_batch_size":"8"}}', 422),
    ("unpin", rb'"\udfff"', 422),
    ("rollback", rb"-Infinity", 422),
]


def test_bodies_that_cannot_be_said_again(site: Site) -> None:
    """Neither text nor a number in JSON: they are refused as the API's document says, and nothing breaks."""
    for order, body, expected in BODIES:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        answer = site.ask(f"/api/targets/a/{order}", method="POST", body=body, headers=headers)

        assert answer.status in (expected if isinstance(expected, tuple) else (expected,)), (order, body)
        if answer.status == 422:
            assert all(set(problem) == {"loc", "msg", "type"} for problem in answer.json["detail"])
    assert site.ask("/api/targets/a").json["paused"] == ""


def test_what_is_no_text_is_not_kept(site: Site) -> None:
    """What would disturb a terminal is left out of the reason that is shown there."""
    paused = site.order("/api/targets/a/pause", {"why": "a\x00 \x1b[31mtest\u202e"})

    assert paused.json["paused"] == "a [31mtest"


@pytest.mark.parametrize(
    ("length", "status"),
    [("00000000000020000000", 413), ("99999999999999999999", 413), ("0" * 18 + "2", 200), ("+2", 400)],
)
def test_a_length_is_read_as_a_whole(site: Site, length: str, status: int) -> None:
    """However it is written."""
    with connected(site) as connection:
        connection.sendall(head(Content_Length=length) + b"{}")

        assert answered(connection) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://[evil"}, 400),
        ({"Content_Type": "text/plain"}, 415),
    ],
)
def test_nothing_is_read_of_whom_is_refused(site: Site, headers: dict[str, Any], status: int) -> None:
    """The answer comes before the body."""
    with connected(site) as connection:
        connection.sendall(head(Content_Length="100", **headers))

        assert answered(connection) == status


def test_bytes_are_counted_as_they_come() -> None:
    """Whatever their number was said to be."""
    seen: list[int] = []

    async def application(scope: object, receive: Receive, send: object) -> None:
        while True:
            seen.append(len((await receive())["body"]))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * (LONGEST_BODY // 4), "more_body": True}

    scope = {"type": "http", "path": "/", "headers": [(b"host", b"localhost")]}
    with pytest.raises(HTTPException) as caught:
        asyncio.run(Gate(application)(scope, receive, None))

    assert caught.value.status_code == 413
    assert sum(seen) == LONGEST_BODY


def test_a_probe_is_answered_though_many_connect_after_it(site: Site) -> None:
    """A connection that has just begun does not give way to others."""
    with connected(site) as probe:
        waiting = [connected(site) for _ in range(MOST_CONNECTIONS + 10)]
        try:
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

            assert answered(probe) == 200
        finally:
            for connection in waiting:
                connection.close()


def test_many_half_requests_keep_nobody_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stalest connections give way."""
    monkeypatch.setattr(Connection, "most_in_a_flood", MOST_CONNECTIONS)
    waiting = [connected(site) for _ in range(MOST_CONNECTIONS + 10)]
    try:
        for connection in waiting:
            connection.sendall(b"GET /heal")

        assert [site.ask(path).status for path in ("/healthz", "/api/targets")] == [200, 200]
    finally:
        for connection in waiting:
            connection.close()


def test_a_flood_leaves_files_for_the_targets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process may open few files, fewer connections are kept: gRPC ends one that has none left."""
    monkeypatch.setattr(open_files, "limit", lambda: 64)
    waiting = [connected(site) for _ in range(20)]
    try:
        assert site.ask("/healthz").status == 200
        assert sum(is_open(connection) for connection in waiting) < 64 * Connection.share
    finally:
        for connection in waiting:
            connection.close()


def is_open(connection: socket.socket) -> bool:
    """Whether the other side has kept it."""
    connection.settimeout(0.02)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


READ = b"GET /api/targets/a/windows HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Windows are not found until the test is over."""
    over = threading.Event()

    def find(*_: object) -> list[Any]:
        over.wait(5 * LONGEST)
        return []

    monkeypatch.setattr(api_module, "windows", find)
    yield
    over.set()


@pytest.mark.usefixtures("slow")
def test_probes_are_answered_while_readers_wait(site: Site) -> None:
    """However many: all threads may be busy."""
    waiting = [connected(site) for _ in range(MOST_CONNECTIONS + 16)]
    try:
        for connection in waiting:
            with contextlib.suppress(ConnectionError):  # some have given way
                connection.sendall(READ)

        assert [site.ask(path).status for path in PROBES] == [200, 200]
    finally:
        for connection in waiting:
            connection.close()


@pytest.mark.usefixtures("slow")
def test_probes_are_answered_whatever_clients_left_behind(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests of connections that were aborted go on; when they are too many, others are refused."""

    def refused(patience: float = 5.0) -> bool:
        """Leave one more behind, unless it is refused; on a busy machine some are never read."""
        with connected(site) as connection:
            connection.sendall(READ)
            connection.settimeout(patience)
            with contextlib.suppress(TimeoutError, ConnectionError):
                return answered(connection) == 503
        return False

    for _ in range(MOST_REQUESTS):
        refused(0.02)

    eventually(refused)
    assert [site.ask(path).status for path in PROBES] == [200, 200]
    assert len(caplog.records) <= MOST_MESSAGES


def test_strangers_do_not_fill_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A line for each request that is none would."""
    for _ in range(3 * MOST_MESSAGES):
        with connected(site) as connection:
            connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            connection.recv(1000)

    assert 1 <= len(caplog.records) <= MOST_MESSAGES


def test_what_was_left_out_is_counted() -> None:
    """In the first message of the next minute."""
    time = 0.0
    seldom = Seldom(lambda: time)
    records = [
        logging.LogRecord("x", logging.INFO, "", 0, "m%d", (n,), None) for n in range(MOST_MESSAGES + 5)
    ]
    passed = [record for record in records if seldom.filter(record)]
    time = 61.0
    last = logging.LogRecord("x", logging.INFO, "", 0, "m%s", ("!",), None)

    assert len(passed) == MOST_MESSAGES
    assert seldom.filter(last)
    assert last.getMessage() == "m! (before it 5 messages were left out)"


def test_an_answer_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest entries are in it, whole."""
    eventually(lambda: len(site.ask("/api/targets/a/windows").json) > 2)
    whole = site.ask("/api/targets/a/windows")
    monkeypatch.setattr(api_module, "LARGEST_ANSWER", len(whole.text) // 2)
    some = site.ask("/api/targets/a/windows")

    assert len(some.text) <= len(whole.text) // 2
    assert 0 < len(some.json) < len(whole.json)
    assert some.json[-1]["number"] >= whole.json[-1]["number"]


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /heal", head(Content_Length="100") + b"{", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"],
)
def test_half_a_request_ends_by_itself(site: Site, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Also one that is whole but for its body, or its last line."""
    monkeypatch.setattr(Connection, "longest_exchange", 0.1)
    with connected(site) as connection:
        connection.sendall(sent)
        try:
            left = connection.recv(100)
        except ConnectionError:
            left = b""

    assert left == b""


def test_a_target_that_is_changed_is_not_gone(site: Site) -> None:
    """While the file is read again its worker may still be ending: it is shown, and takes orders."""
    worker = site.daemon._workers.pop("a")
    try:
        answers = [site.ask(f"/api/targets/a{path}") for path in ("", "/costs", "/windows")]
        ordered = site.order("/api/targets/a/pause")
    finally:
        site.daemon._workers["a"] = worker

    assert [answer.status for answer in (*answers, ordered)] == [200] * 4
    assert answers[0].json["phase"] == "starting"
    assert answers[0].json["since"] == pytest.approx(time.time(), abs=LONGEST)
    assert answers[1].json["costs"] == []
    assert answers[2].json
    assert ordered.json["paused"]
    assert site.ask("/api/targets/b").status == 404
