"""Asks a web server one question, from the lookup of its name to the last byte of its answer by one deadline.

``http.client`` reads the answer. By itself it would give each piece that it reads the whole time again, so a
server that sends a header, a chunk size or a trailer byte by byte, or ``100 Continue`` without end, would
hold its caller for good. Here every read gets the time that is left. Redirects are not followed: an address
that was checked must not lead to one that was not.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from tuner.adapters.connection.credentials import is_loopback
from tuner.adapters.connection.lookup import addresses_of
from tuner.errors import InvalidInput

__all__ = ["HTTP_PORTS", "TooLarge", "WebAnswer", "get", "proxy_for"]

CHUNK = 65536
T = TypeVar("T")
HTTP_PORTS = {"http": 80, "https": 443}


class TooLarge(http.client.HTTPException):
    """The answer has more bytes than it may have."""


class WebAnswer(NamedTuple):
    """What a web server answered."""

    status: int
    reason: str
    body: bytes

    def read(self, form: Callable[[Any], T]) -> T:
        """Return what a function finds in the body, which is JSON.

        Raises:
            ValueError: It is no JSON, or not in the form that the function expects. Numbers may be infinite,
                and lists nested without end.
        """
        try:
            return form(json.loads(self.body))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
            raise ValueError("not in the expected form") from error


def get(
    host: str,
    port: int,
    path: str,
    *,
    deadline: float,
    largest: int,
    context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    proxy: SplitResult | None = None,
) -> WebAnswer:
    """Return what a server answers to a GET.

    Args:
        host: Name or address.
        port: Its port.
        path: What to get.
        deadline: When the whole answer must be there, s on the monotonic clock.
        largest: Most bytes of the body.
        context: How to verify the server; None asks in the clear.
        headers: Are sent with the question; without TLS a proxy sees them, too.
        proxy: A proxy on the way; see :func:`proxy_for`.

    Raises:
        TimeoutError: The answer was not there by the deadline.
        OSError: Nobody answers, or the server is not trusted.
        TooLarge: The answer is too large.
        HTTPException: Who answers does not speak HTTP, or ends in the middle.
    """
    sent = dict(headers or {})
    hop = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or HTTP_PORTS["http"])
    with ExitStack() as opened:
        sock = opened.enter_context(_connected(*hop, deadline))
        if proxy is not None and context is not None:
            _open_tunnel(sock, host, port, proxy, deadline)
        elif proxy is not None:
            path, sent = f"http://{_bracketed(host)}:{port}{path}", {**_authorization(proxy), **sent}
        if context is not None:
            sock.settimeout(_left(deadline))
            sock = opened.enter_context(context.wrap_socket(sock, server_hostname=host))
        connection = http.client.HTTPConnection(host, port)
        connection.default_port = HTTP_PORTS["http" if context is None else "https"]
        connection.sock = _Line(sock, deadline)
        try:
            connection.request("GET", path, headers=sent)
        except UnicodeError as error:
            raise OSError("is no web address") from error
        return _received(connection.getresponse(), largest)


def proxy_for(url: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for an address, None if it is to be asked directly.

    This machine is never reached through a proxy: what is sent to it is not meant for anybody else.

    Raises:
        InvalidInput: What the environment names is no proxy that can be asked over HTTP.
    """
    host = url.hostname or ""
    named = getproxies().get(url.scheme)
    if not named or is_loopback(host) or proxy_bypass(host):
        return None
    return _read_proxy(named, f"environment variable {url.scheme}_proxy")


def _read_proxy(text: str, setting: str) -> SplitResult:
    """Read the address of a proxy. Errors do not repeat it: it may hold a password."""
    try:
        proxy = urlsplit(text if "://" in text else f"http://{text}")
        usable = bool(proxy.hostname) and proxy.port != 0
    except ValueError:  # no number as a port, or an unfinished bracket
        usable = False
    if not usable:
        raise InvalidInput(setting, "is not the address of a proxy", "write http://HOST:PORT")
    if proxy.scheme != "http":
        # What a user keeps from the network by https:// would be sent to the proxy in the clear.
        problem = f"a proxy that is reached by {proxy.scheme}:// cannot be used"
        raise InvalidInput(setting, problem, "name one that is reached by http://, or set no_proxy")
    return proxy


def _received(answer: http.client.HTTPResponse, largest: int) -> WebAnswer:
    body = bytearray()
    while chunk := answer.read1(CHUNK):
        body += chunk
        if len(body) > largest:
            raise TooLarge(f"more than {largest} bytes")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return WebAnswer(answer.status, answer.reason, bytes(body))


def _open_tunnel(sock: socket.socket, host: str, port: int, proxy: SplitResult, deadline: float) -> None:
    """Have a proxy connect us to a server; what follows is between us and the server."""
    connection = http.client.HTTPConnection(host, port)
    connection.sock = _Line(sock, deadline)
    connection.request("CONNECT", f"{_bracketed(host)}:{port}", headers=_authorization(proxy))
    answer = connection.getresponse()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"the proxy {proxy.hostname} says: {answer.status} {answer.reason}")


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """Return a connection to the first address of a host that answers; each gets its part of the time."""
    addresses = addresses_of(host, port, _left(deadline))
    problem: OSError = OSError(f"{host} has no address")
    for number, address in enumerate(addresses):
        try:
            share = _left(deadline) / (len(addresses) - number)
            return socket.create_connection((address.host, port), timeout=share)
        except OSError as error:
            problem = error
    raise problem


def _left(deadline: float) -> float:
    """Return the time until a deadline, s.

    Raises:
        TimeoutError: There is none.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Line:
    """A connection that ends at a deadline; what ``http.client`` needs of a socket. Its owner closes it."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._sock, self._deadline), CHUNK)

    def close(self) -> None:
        """Nothing: the answer is read after ``http.client`` has closed the connection."""


class _Incoming(io.RawIOBase):
    """What comes in on a connection before a deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)
