"""The channels over which servers are reached."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from tuner.adapters.connection.channel import LIVELY, open_channel
from tuner.adapters.connection.security import Security
from tuner.adapters.tfserving.target import parse_target
from tuner.dispatch.backends.channel import open_aio
from tuner.profiler.load import worker


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def service(self, _details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


@pytest.fixture
def port() -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Echo(),))
    number = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield number
    server.stop(None).wait()


def user_timeouts(port: int) -> list[int]:
    """``TCP_USER_TIMEOUT`` of our connections to a port, ms; 0 is what the kernel does by itself."""
    connections = psutil.Process().net_connections("tcp")
    ours = [entry.fd for entry in connections if entry.raddr and entry.raddr[1] == port]
    found = []
    for number in ours:
        with socket.socket(fileno=os.dup(number)) as copy:
            found.append(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    return found


def ask(port: int) -> list[int]:
    """Over the channel on which servers are controlled."""
    with open_channel(f"127.0.0.1:{port}", "127.0.0.1", Security()) as channel:
        channel.unary_unary("/a/b")(b"", timeout=60)
        return user_timeouts(port)


async def send_batch(port: int) -> list[int]:
    async with open_aio(parse_target(f"tfserving://127.0.0.1:{port}/mlp?rest=1")) as channel:
        await channel.unary_unary("/a/b")(b"", timeout=60)
        return user_timeouts(port)


async def send_load(port: int) -> list[int]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=worker.OPTIONS) as channel:
        await channel.unary_unary("/a/b")(b"", timeout=60)
        return user_timeouts(port)


@pytest.mark.parametrize(
    "use",
    [ask, lambda port: asyncio.run(send_batch(port)), lambda port: asyncio.run(send_load(port))],
    ids=["control", "batches", "load"],
)
def test_a_connection_whose_other_end_has_vanished(use: Callable[[int], list[int]], port: int) -> None:
    """It ends when nobody has acknowledged for ten seconds what was sent; by default after 15 minutes."""
    assert use(port) == [10_000]


def test_servers_are_not_asked_too_often() -> None:
    """A server of gRPC ends the connection of a client that pings more often than every five minutes."""
    assert dict(LIVELY)["grpc.keepalive_time_ms"] > 300_000
