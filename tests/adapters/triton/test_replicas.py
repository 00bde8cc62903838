"""Two real Tritons as one backend."""

from __future__ import annotations

import time

import pytest
import tenacity

from tests.conftest import sender
from tuner.adapters import connect
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.profiler.load.generator import LoadGenerator
from tuner.testing.backend import BackendContract

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def second():
    with EmbeddedTriton() as server:
        yield server


@pytest.fixture
def target(embedded, second):
    ports = ",".join(f"127.0.0.1:{server.ports.grpc}" for server in (embedded, second))
    return f"triton://{ports}/mlp?metrics={embedded.ports.metrics},{second.ports.metrics}"


@pytest.fixture
def backend(target):
    opened = connect(target)
    yield opened
    another = connect(target)  # the test may have closed the first
    another.apply(another.space.default)
    another.close()
    opened.close()


class TestContract(BackendContract):
    """A group is held to all that one server is."""

    @pytest.fixture
    def backend(self, backend):
        return backend

    @pytest.fixture
    def traffic(self, backend, embedded, second):
        def send(count):
            wanted = backend.counters().requests + count
            sender(embedded.target)(count - count // 2)
            sender(second.target)(count // 2)
            patiently = tenacity.Retrying(
                stop=tenacity.stop_after_delay(5),
                wait=tenacity.wait_fixed(0.01),
                retry=tenacity.retry_if_result(lambda counters: counters.requests < wanted),
            )
            patiently(backend.counters)

        return send


def test_load_goes_to_both(backend, embedded, second):
    """By turns, and each counts its half."""
    each = [connect(server.target) for server in (embedded, second)]
    with LoadGenerator(backend.endpoint(), "constant:60") as load:
        time.sleep(1.0)
    counts = [one.counters().requests for one in each]

    assert load.totals().failed == 0
    assert min(counts) == pytest.approx(max(counts), abs=2)
    assert min(counts) > 20
    for one in each:
        one.close()
