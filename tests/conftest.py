"""What all tests share: the order they run in, and live servers, started once and only if wanted."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests import kernels
from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.embedded import EmbeddedTFServing
from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.errors import UnsupportedPlatform
from tuner.web import seldom

Sender = Callable[..., None]

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and children would inherit it: tests of Ctrl-C could not work.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of compiled functions, and let tests of live servers, which wait long, come first.

    Each process takes one test at a time, of any file. To keep the tests of a file or of a kind of server in
    one process takes as long, and the one server then has to outlive hundreds of changes.
    """
    folders = kernels.folders_of_tests()
    for item in items:
        if item.path.parent in folders:
            item.add_marker(pytest.mark.kernels)
    items.sort(key=lambda item: not any(map(item.get_closest_marker, ("triton", "tfserving"))))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs compilation where it is off, and TensorFlow where it is not to be had."""
    if not kernels.COMPILED and item.get_closest_marker("compiled") is not None:
        pytest.skip("simulates too much to be run without compilation")
    if item.get_closest_marker("tfserving") is not None:
        from tuner.adapters.tfserving.download import require_platform

        try:
            require_platform()
        except UnsupportedPlatform as error:
            pytest.skip(str(error))


@pytest.fixture(autouse=True)
def all_messages() -> Iterator[None]:
    """A web server limits what is logged in its process; that of a test ends with it."""
    yield
    for logger in map(logging.getLogger, seldom.NAMES):
        for limit in [one for one in logger.filters if isinstance(one, seldom.Seldom)]:
            logger.removeFilter(limit)


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedTriton]:
    """A real server with the model mlp, in explicit mode, with quantiles."""
    with EmbeddedTriton() as server:
        yield server


@pytest.fixture(scope="session")
def fixed_server() -> Iterator[EmbeddedTriton]:
    """A real server as Triton starts by default: no changes allowed, no quantiles."""
    with EmbeddedTriton(options=TritonOptions(explicit=False, summaries=False)) as server:
        yield server


@pytest.fixture(scope="session")
def embedded_tfserving() -> Iterator[EmbeddedTFServing]:
    """A TensorFlow Serving (or its stand-in) with the model mlp and batching parameters for each version."""
    with EmbeddedTFServing() as server:
        yield server


@pytest.fixture
def tfserving(embedded_tfserving: EmbeddedTFServing) -> Iterator[EmbeddedTFServing]:
    """The TensorFlow Serving; what a test changes is put back."""
    with closing(TFServingBackend(embedded_tfserving.target, settle=0.0)) as found:
        yield embedded_tfserving
        found.restore()


def sender(target: str) -> Sender:
    """Return a function that sends ``count`` requests of ``rows`` rows to mlp, one after another."""
    import tritonclient.grpc as tritongrpc

    def send(count: int, rows: int = 1) -> None:
        data = tritongrpc.InferInput("input", [rows, 256], "FP32")
        data.set_data_from_numpy(np.zeros((rows, 256), np.float32))
        with tritongrpc.InferenceServerClient(target.split("/")[2]) as client:
            for _ in range(count):
                client.infer("mlp", [data])

    return send
