"""Threads that ask for grants over gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.dispatch.front.echo import Echo, running
from tuner.dispatch.client import GrantClient, Refused, Status
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.grant import Ended

TOKEN = "a token of many letters"


@pytest.fixture
def service() -> Echo:
    return Echo()


@pytest.fixture
def address(service: Echo) -> Iterator[str]:
    with running(service, FrontConfig(grpc=("127.0.0.1", 0), token=TOKEN)) as fronts:
        assert fronts.grpc_address is not None
        yield "{}:{}".format(*fronts.grpc_address)


def test_a_grant(service: Echo, address: str) -> None:
    """It says where to send; the end of the block says how long that took."""
    before = time.monotonic()
    with GrantClient(address, token=TOKEN) as client:
        with client.grant("echo", items=3, kind="(2,)", timeout=90.0) as granted:
            assert (granted.address, granted.model, granted.timeout) == ("backend:1", "model", 0.5)
        with pytest.raises(KeyError), client.grant("echo"):
            raise KeyError
        with client.grant("echo") as granted:
            granted.lost(ConnectionError("connection refused"))
    after = time.monotonic()

    ask, took = service.asks[0], service.ended[0].seconds
    assert (ask.session, ask.items, ask.kind) == ("echo", 3, "(2,)")
    assert ask.deadline is not None
    assert before <= ask.deadline - 90 <= after
    assert took is not None
    assert 0 < took <= after - before
    assert service.ended[1:] == [Ended(), Ended(None, "connection refused")]


def test_this_machine_is_not_reached_through_a_proxy(
    service: Echo, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy of the environment would read the token."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)

    with GrantClient(address, token=TOKEN) as client, client.grant("echo", timeout=2.0) as granted:
        assert granted.address == "backend:1"


def test_many_threads(service: Echo, address: str) -> None:
    """They share one client."""

    def ask(client: GrantClient) -> str:
        with client.grant("echo") as granted:
            return granted.address

    with GrantClient(address, token=TOKEN) as client, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, [client] * 64)) == ["backend:1"] * 64
    assert len(service.ended) == 64


def test_refusals(address: str) -> None:
    """They have the dispatcher's status and reason, also without the token, or without a dispatcher."""
    with GrantClient(address, token=TOKEN) as client:
        for status in (Status.DEADLINE, Status.EXHAUSTED):
            with pytest.raises(Refused, match=f"it is {status.name}") as refused:
                client.grant(status.name).__enter__()
            assert refused.value.status is status
    with GrantClient(address) as client, pytest.raises(Refused, match="token is missing") as refused:
        client.grant("echo").__enter__()
    assert refused.value.status is Status.INVALID
    with GrantClient("127.0.0.1:1") as client, pytest.raises(Refused) as refused:
        client.grant("echo").__enter__()
    assert refused.value.status is Status.UNAVAILABLE
