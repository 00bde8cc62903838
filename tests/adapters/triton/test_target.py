"""Targets like ``triton://host:8001/model?metrics=8002``."""

from __future__ import annotations

import pytest

from tuner.adapters.triton.target import TritonTarget, parse_target
from tuner.errors import InvalidInput


def test_everything_given() -> None:
    """Host, port, model, version and metrics port are read."""
    url = "triton://gpu-7.example:9001/bert?metrics=9002&version=3"

    target = parse_target(url)

    assert target == TritonTarget(
        url=url, host="gpu-7.example", port=9001, model="bert", version="3", metrics_port=9002
    )
    assert target.address == "gpu-7.example:9001"


def test_defaults_are_tritons_own() -> None:
    """Without ports, Triton's default ports are meant."""
    target = parse_target("triton://localhost/mlp")

    assert (target.port, target.metrics_port, target.version) == (8001, 8002, "")


def test_metrics_off() -> None:
    """A server without metrics can be named."""
    assert parse_target("triton://h/m?metrics=off").metrics_port is None


def test_batches_may_go_over_http() -> None:
    """If its port is given."""
    assert parse_target("triton://h/m").http_port is None
    assert parse_target("triton://h/m?http=8000&metrics=off").http_port == 8000


def test_address_of_ip_version_6() -> None:
    """gRPC wants brackets around such an address."""
    assert parse_target("triton://[::1]:8001/m").address == "[::1]:8001"


def test_a_host_beyond_ascii() -> None:
    """It is asked for as DNS knows it, by gRPC and in the headers of HTTP."""
    target = parse_target("triton://BÜCHER.example:8001/m?http=8000")
    assert (target.host, target.address) == ("xn--bcher-kva.example", "xn--bcher-kva.example:8001")


@pytest.mark.parametrize(
    "text",
    [
        f"triton://{'ü' * 64}.example/m",
        f"triton://{'u' * 64}.example/m",
        "triton://host..example/m",
        "triton://:8001/m",
        "triton://host:8001",
        "triton://host:8001/",
        "triton://host:8001/a/b",
        "triton://host:port/m",
        "triton://host:70000/m",
        "triton://host:0/m",
        "http://host:8001/m",
        "triton://user:secret@host/m",
        "triton://host/m?metrics=",
        "triton://host/m?metrics=-1",
        "triton://host/m?metrics=99999",
        f"triton://host/m?metrics={'9' * 5000}",
        "triton://host/m?metrics=8002&metrics=8003",
        "triton://host/m?matrics=8002",
        "triton://host/m?version=x",
        "triton://host/m?http=off",
        "triton://host/m?http=8000&tls=all",
        "triton://[::1/m",
    ],
)
def test_malformed(text: str) -> None:
    """Anything else is one clear mistake."""
    with pytest.raises(InvalidInput, match="TARGET"):
        parse_target(text)
