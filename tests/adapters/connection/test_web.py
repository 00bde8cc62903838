"""Asking web servers that send slowly, without end, or something else than HTTP."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.adapters.certificates import make_certificates
from tests.adapters.connection.hostile_server import ENDED_SOON, endless, hostile
from tuner.adapters.connection.web import TooLarge, WebAnswer, get, proxy_for
from tuner.errors import InvalidInput

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
TIMEOUT = 0.2

ENDLESS = {
    "nothing": endless(b"", b""),
    "status line": endless(b"HTTP/1.1 200 O", b"K"),
    "header": endless(OK + b"Server: ", b"x"),
    "headers": endless(OK, b"A: b\r\n"),
    "body": endless(OK + b"\r\n", b"x"),
    "body of a length": endless(OK + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "chunk size": endless(CHUNKED, b"0"),
    "chunk extension": endless(CHUNKED + b"1;", b"x"),
    "chunks": endless(CHUNKED, b"1\r\nx\r\n"),
    "trailer": endless(CHUNKED + b"0\r\n", b"A: b\r\n"),
    "continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


def ask(port: int, *, timeout: float = 60.0, largest: int = 1000, **more: Any) -> WebAnswer:
    return get("127.0.0.1", port, "/x", deadline=time.monotonic() + timeout, largest=largest, **more)


@pytest.mark.parametrize("part", ENDLESS)
def test_one_deadline_for_all_parts_of_an_answer(part: str) -> None:
    """Whatever comes byte by byte or does not end."""
    with hostile(ENDLESS[part]) as port:
        begun = time.monotonic()
        with pytest.raises((TimeoutError, http.client.HTTPException)):
            ask(port, timeout=TIMEOUT)

    assert time.monotonic() - begun < ENDED_SOON


def test_the_deadline_holds_for_a_handshake(tmp_path: Path) -> None:
    """A server that accepts, and then says nothing of TLS."""
    with hostile(ENDLESS["nothing"]) as port, pytest.raises(TimeoutError):
        ask(port, timeout=TIMEOUT, context=ssl.create_default_context())


def test_the_deadline_holds_for_the_lookup_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's lookup may take half a minute."""
    asked, over = threading.Event(), threading.Event()

    def look_up(*_: Any, **__: Any) -> list[Any]:
        asked.set()
        over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(TimeoutError, match="the name here was not found in time"):
        get("here", 80, "/", deadline=time.monotonic() + 0.05, largest=1)

    assert asked.is_set()
    over.set()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"\r\n" + b"x" * 1001,
        OK + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001,
        CHUNKED + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
    ],
)
def test_an_answer_that_is_too_large(answer: bytes) -> None:
    """It is not read to its end."""
    with hostile(lambda: [answer]) as port, pytest.raises(TooLarge, match="more than 1000 bytes"):
        ask(port)


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 9\r\n\r\nshort",
        CHUNKED + b"9\r\nshort",
        CHUNKED + b"-5\r\nshort\r\n",
        CHUNKED + b"x\r\nshort\r\n",
        OK + b"A: " + b"x" * 70_000,
        OK + b"A: b\r\n" * 101 + b"\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 99999999 OK\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_none(answer: bytes) -> None:
    """A page that ends in the middle is not taken for a short one."""
    with hostile(lambda: [answer]) as port, pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(port)


def test_interim_answers_are_no_answer() -> None:
    """The one after them is."""
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + OK + b"Content-Length: 2\r\n\r\nyes"
    with hostile(lambda: [answer]) as port:
        assert ask(port) == WebAnswer(200, "OK", b"ye")


def test_redirects_are_not_followed() -> None:
    """Neither the address nor what is sent to it was checked for the other one."""
    heard: list[bytes] = []
    with hostile(lambda: [OK], heard) as other:
        answer = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n"
        with hostile(lambda: [answer.encode()]) as port:
            assert ask(port).status == 302

    assert heard == []


def test_a_second_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have several, of which not all answer."""
    look_up = socket.getaddrinfo
    with hostile(lambda: [OK + b"\r\nyes"]) as port:
        both = [entry for n in (2, 1) for entry in look_up(f"127.0.0.{n}", port, type=socket.SOCK_STREAM)]
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *a, **k: both if host == "here" else look_up(host, *a, **k),
        )

        assert get("here", port, "/", deadline=time.monotonic() + 60, largest=10).body == b"yes"


def test_what_is_no_name() -> None:
    """It ends as an address that does not answer."""
    with pytest.raises(OSError, match="is no name of a host"):
        get("x" * 70 + ".ä", 80, "/", deadline=time.monotonic() + 60, largest=1)
    with hostile(lambda: [OK]) as port, pytest.raises(OSError, match="is no web address"):
        get("127.0.0.1", port, "/ä", deadline=time.monotonic() + 60, largest=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.0.0.9"])
def test_this_machine_is_never_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A token for a server on this machine would go out in the clear."""
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside")

    assert proxy_for(urlsplit(f"http://{host}:9090")) is None
    assert proxy_for(urlsplit("http://inside:9090")) is None
    assert proxy_for(urlsplit("https://far")) is None
    assert proxy_for(urlsplit("http://far")).hostname == "proxy"


@pytest.mark.parametrize(
    ("proxy", "problem"),
    [
        ("http://me:secret@p:abc", "is not the address of a proxy; write http://HOST:PORT"),
        ("p:70000", "is not the address of a proxy"),
        ("p:0", "is not the address of a proxy"),
        ("http://", "is not the address of a proxy"),
        ("http://[::1", "is not the address of a proxy"),
        ("https://me:secret@p:3128", "a proxy that is reached by https:// cannot be used"),
        ("socks5://p:1080", "a proxy that is reached by socks5:// cannot be used"),
    ],
)
def test_a_proxy_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, proxy: str, problem: str) -> None:
    """It is a mistake of the environment, whose variable is named; a password in it is not repeated."""
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)

    with pytest.raises(InvalidInput, match=f"^environment variable http_proxy: {problem}") as caught:
        proxy_for(urlsplit("http://far:9090"))

    assert "secret" not in str(caught.value)


def test_a_proxy_in_the_clear() -> None:
    """It gets the whole address, and what it wants to know of us."""
    heard: list[bytes] = []
    with hostile(lambda: [OK + b"\r\nyes"], heard) as port:
        proxy = urlsplit(f"http://me:s%40@127.0.0.1:{port}")
        answer = get("far", 9090, "/x", deadline=time.monotonic() + 60, largest=10, proxy=proxy)

    assert answer.body == b"yes"
    assert heard[0].startswith(b"GET http://far:9090/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c0A=\r\n" in heard[0]


def test_a_proxy_on_the_way_to_tls(tmp_path: Path) -> None:
    """It is asked for a tunnel and sees nothing of what goes through: no path, no token."""
    make_certificates(tmp_path)
    heard: list[bytes] = []
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    def serve() -> None:
        caller, _ = server.accept()
        heard.append(caller.recv(65536))
        caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with theirs.wrap_socket(caller, server_side=True) as secured:
            heard.append(secured.recv(65536))
            secured.sendall(OK + b"Content-Length: 3\r\n\r\nyes")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        answer = get(
            "localhost",
            443,
            "/x",
            deadline=time.monotonic() + 60,
            largest=10,
            context=ssl.create_default_context(cafile=tmp_path / "ca.crt"),
            headers={"Authorization": "Bearer secret"},
            proxy=urlsplit(f"http://127.0.0.1:{server.getsockname()[1]}"),
        )
        thread.join()

    assert answer.body == b"yes"
    assert heard[0].startswith(b"CONNECT localhost:443 HTTP/1.1\r\n")
    assert b"secret" not in heard[0]
    assert b"Host: localhost\r\n" in heard[1]
    assert b"Bearer secret" in heard[1]


def test_a_proxy_that_refuses() -> None:
    """Its words are in the error."""
    answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    with (
        hostile(lambda: [answer]) as port,
        pytest.raises(OSError, match=r"127\.0\.0\.1 says: 407 Proxy Auth"),
    ):
        get(
            "far",
            443,
            "/",
            deadline=time.monotonic() + 60,
            largest=10,
            context=ssl.create_default_context(),
            proxy=urlsplit(f"http://127.0.0.1:{port}"),
        )


FORMS: list[tuple[bytes, Callable[[Any], object]]] = [
    (b"[" * 100_000, str),
    (b'{"a":' * 100_000, str),
    (b"1" * 5000, str),
    (b"1e999", int),
    (b"NaN", int),
    (b"1" + b"0" * 400, float),
    (b'{"a": 1}', lambda body: body["b"]),
    (b"[]", lambda body: body[0]),
    (b"7", lambda body: body.get("x")),
    (b"[1]", float),
    (b"\xff\xfe", str),
    (b"", str),
]


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_json_in_no_expected_form(number: int) -> None:
    """Deep nesting, numbers that are too long or too large, other types: one error for all."""
    body, form = FORMS[number]

    with pytest.raises(ValueError):  # noqa: PT011  # json's own message, or ours
        WebAnswer(200, "OK", body).read(form)
