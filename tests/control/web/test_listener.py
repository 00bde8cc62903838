"""Where our web servers listen."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tuner.errors import InvalidInput
from tuner.web.listener import bound


@pytest.fixture(autouse=True)
def needs_ipv6() -> None:
    """Some machines and containers have none."""
    try:
        with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")


def reached(listening: socket.socket) -> list[str]:
    """The addresses of this machine at which somebody listens."""
    port, found = listening.getsockname()[1], []
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError:
            continue
        found.append(host)
    return found


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("::", ["127.0.0.1", "::1"]),
        ("0:0::0", ["127.0.0.1", "::1"]),
        ("::1", ["::1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1"]),
    ],
)
def test_all_addresses_are_those_of_both_kinds(host: str, expected: list[str]) -> None:
    """As for gRPC, which listens there as well: a pod has addresses of both kinds."""
    with closing(bound((host, 0), "listen")) as listening:
        assert reached(listening) == expected


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("2001:db8::1", "listen: [2001:db8::1]:7411 cannot be used: Cannot assign requested address"),
        ("192.0.2.1", "listen: 192.0.2.1:7411 cannot be used: Cannot assign requested address"),
    ],
)
def test_an_address_of_others_is_told_as_it_is_written(host: str, problem: str) -> None:
    """And not a second time, as Python does."""
    with pytest.raises(InvalidInput) as caught:
        bound((host, 7411), "listen")

    assert str(caught.value) == problem
