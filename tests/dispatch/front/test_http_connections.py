"""Which connections over HTTP end for new ones when there are too many."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse

import pytest

from tests.dispatch.front.echo import PATIENCE, Echo, running
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.front.http_server import FrontConnection
from tuner.web import connection

BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}).encode()
SLOW = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


class Clients:
    """Opens connections to a front; one is open when the next begins."""

    def __init__(self, address: tuple[str, int], stack: ExitStack) -> None:
        self._address = address
        self._stack = stack

    def live(self) -> socket.socket:
        """Return a connection over which a question was answered."""
        client = self._open(b"")
        assert is_open(client)
        return client

    def slow(self, service: Echo) -> socket.socket:
        """Return a connection whose request waits for its answer."""
        service.waiting.clear()
        client = self._open(SLOW)
        assert service.waiting.wait(PATIENCE)
        return client

    def _open(self, sent: bytes) -> socket.socket:
        client = self._stack.enter_context(closing(socket.create_connection(self._address, PATIENCE)))
        client.sendall(sent)
        return client


def is_open(client: socket.socket) -> bool:
    """Whether the other side has kept a connection; it is asked once more."""
    try:
        client.sendall(LIVE)
        answer = HTTPResponse(client)
        answer.begin()
        return answer.read() == b'{"live": true}'
    except ConnectionError:
        return False


@pytest.fixture
def service() -> Echo:
    return Echo()


@pytest.fixture
def clients(service: Echo, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """Two of them are many, and three a flood."""
    monkeypatch.setattr(FrontConnection, "most", 2)
    monkeypatch.setattr(FrontConnection, "most_in_a_flood", 3)
    monkeypatch.setattr(connection, "GRACE", -1.0)
    with running(service, FrontConfig(http=("127.0.0.1", 0))) as fronts, ExitStack() as stack:
        assert fronts.http_address is not None
        yield Clients(fronts.http_address, stack)


def test_a_connection_whose_request_waits_is_kept(clients: Clients, service: Echo) -> None:
    """Idle ones end for new ones, though they are younger."""
    clients.slow(service)
    idle = clients.live()

    last = clients.live()

    assert not is_open(idle)
    assert is_open(last)
    assert not service.cancelled.is_set()


def test_new_connections_have_room_while_all_requests_wait(clients: Clients, service: Echo) -> None:
    """Up to the bound of a flood, from which on the stalest ends in any case."""
    for _ in range(2):
        clients.slow(service)

    clients.slow(service)
    assert not service.cancelled.is_set()

    clients.live()
    assert service.cancelled.wait(PATIENCE)
