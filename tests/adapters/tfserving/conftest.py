"""Backends on a TensorFlow Serving (or its stand-in), and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

from tests.adapters.waiting import counted
from tuner.adapters.connection.request import Input, filled_inputs
from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.embedded import EmbeddedTFServing
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.wire import METHOD, encode

Send = Callable[..., list[bytes]]


@pytest.fixture
def embedded(embedded_tfserving: EmbeddedTFServing) -> EmbeddedTFServing:
    return embedded_tfserving


@pytest.fixture
def backend(embedded: EmbeddedTFServing) -> Iterator[TFServingBackend]:
    """A backend on a server that runs as it was started; what a test changes is put back."""
    opened = TFServingBackend(embedded.target, settle=0.0)
    yield opened
    opened.close()
    another = TFServingBackend(embedded.target, settle=0.0)  # the test may have closed the first
    another._version_knobs._found = opened._version_knobs._found
    another.restore()
    another.close()


@pytest.fixture
def send(backend: TFServingBackend) -> Send:
    return sender(backend)


def sender(backend: TFServingBackend) -> Send:
    """Return a function that sends ``count`` requests of ``rows`` rows, one after another."""
    endpoint = backend.endpoint()
    inputs = [Input("input", "FP32", (-1, 256))]

    def send(count: int, rows: int = 1) -> list[bytes]:
        raw = encode(endpoint, filled_inputs(inputs, {"input": (rows, 256)}, np.random.default_rng(0)))
        with grpc.insecure_channel(endpoint.address) as channel:
            predict = channel.unary_unary(METHOD)
            return [predict(raw, timeout=60) for _ in range(count)]

    return send


@pytest.fixture
def traffic(backend: TFServingBackend, send: Send) -> Callable[[int], None]:
    """Send requests and wait until they are counted: the server counts after it answers."""

    def send_and_wait(count: int) -> None:
        wanted = backend.counters().requests + count
        send(count)
        counted(backend, wanted)

    return send_and_wait


def served_by(raw: bytes) -> int:
    """The version that gave an answer."""
    return int(message("PredictResponse").FromString(raw).model_spec.version.value)
