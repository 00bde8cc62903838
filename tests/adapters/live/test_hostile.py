"""Servers that accept a connection and then keep their caller: over gRPC, and with their metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from tritonclient.grpc import service_pb2

from tests.adapters.connection.hostile_server import ENDED_SOON, endless, hostile
from tuner.adapters.connection.client import ControlClient
from tuner.adapters.tfserving.client import TFServingClient
from tuner.adapters.tfserving.target import parse_target as parse_tfserving
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.client import TritonClient
from tuner.adapters.triton.target import parse_target as parse_triton
from tuner.errors import AdapterError, TimedOut

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""The frame with which a server begins to speak HTTP/2."""
TIMEOUT = 0.3


def triton(port: int) -> ControlClient[Any]:
    return TritonClient(parse_triton(f"triton://127.0.0.1:{port}/mlp?metrics=off"), timeout=TIMEOUT)


def tfserving(port: int) -> ControlClient[Any]:
    target = f"tfserving://127.0.0.1:{port}/mlp?rest={port}"
    return TFServingClient(parse_tfserving(target), timeout=TIMEOUT)


@pytest.mark.parametrize(
    "pieces", [endless(b"", b""), endless(SETTINGS, b"\x00"), endless(SETTINGS, SETTINGS)]
)
@pytest.mark.parametrize("connect", [triton, tfserving])
def test_over_grpc(connect: Callable[[int], Any], pieces: Callable[[], Iterable[bytes]]) -> None:
    """One deadline, from connect to the last byte; and another one for the REST port."""
    with hostile(pieces) as port:
        client, begun = connect(port), time.monotonic()
        try:
            with pytest.raises(AdapterError):
                client.identity() if isinstance(client, TritonClient) else client.versions()
        finally:
            client.close()

    assert time.monotonic() - begun < ENDED_SOON


class Triton:
    """Answers over gRPC as it should."""

    def get_server_metadata(self, **_: Any) -> Any:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0\n" + "x" * 10_000)

    def get_model_config(self, *_: Any, **__: Any) -> Any:
        return service_pb2.ModelConfigResponse(config={"name": "mlp", "max_batch_size": 8})

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        return service_pb2.ModelStatisticsResponse()

    def get_model_repository_index(self, **_: Any) -> Any:
        return service_pb2.RepositoryIndexResponse()

    def unload_model(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


def test_metrics_that_begin_to_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were there when the server was attached; a reading of the counters ends in time."""
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: Triton())
    page = b"# TYPE nv_inference_request_failure counter\n"
    answers = [[b"HTTP/1.1 200 OK\r\n\r\n" + page]] * 2

    def pieces() -> Iterable[bytes]:
        return answers.pop() if answers else endless(b"HTTP/1.1 200 OK\r\nServer: ", b"x")()

    with hostile(pieces) as port:
        backend = TritonBackend(f"triton://127.0.0.1:1/mlp?metrics={port}", timeout=2.0)
        version = backend.describe().version
        begun = time.monotonic()
        with pytest.raises(TimedOut, match=rf"metrics port {port}: no answer within 2 s"):
            backend.counters()

    assert time.monotonic() - begun < ENDED_SOON
    assert len(version) == 100
    assert version.isprintable()
