"""What is seen of a server on this machine, by the port on which a process of it listens."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import psutil
import pytest

from tuner.adapters.connection.host import is_local, listening_processes, local_cores

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def port() -> Iterator[int]:
    """One on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_process_that_listens_is_the_server(port: int) -> None:
    """Its machine is this one."""
    assert listening_processes("localhost", port) == (os.getpid(),)
    assert local_cores("localhost", port) == CORES


@pytest.mark.parametrize(("name", "cores"), [("kubectl", None), ("ssh", None), ("docker-proxy", CORES)])
def test_a_process_that_forwards_the_port_is_not_the_server(
    port: int, monkeypatch: pytest.MonkeyPatch, name: str, cores: int | None
) -> None:
    """Of a container the machine is still this one."""
    monkeypatch.setattr(psutil.Process, "name", lambda _: name)

    assert listening_processes("localhost", port) == ()
    assert local_cores("localhost", port) == cores


def test_a_port_on_which_nobody_is_seen() -> None:
    """The server may be in a container, or of another user."""
    assert listening_processes("localhost", 1) == ()
    assert local_cores("localhost", 1) == CORES


def test_where_the_addresses_of_the_machine_cannot_be_listed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sandbox without AF_NETLINK: a server on loopback is still known to be here."""

    def refused() -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(psutil, "net_if_addrs", refused)

    assert listening_processes("localhost", port) == (os.getpid(),)
    assert not is_local("192.0.2.1")
