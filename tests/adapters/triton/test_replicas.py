"""Two real Tritons as one backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.waiting import counted
from tests.conftest import sender
from tests.waiting import eventually
from tuner.adapters import Backend, connect
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.profiler.load.generator import LoadGenerator
from tuner.testing.backend import BackendContract, Traffic

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def second() -> Iterator[EmbeddedTriton]:
    with EmbeddedTriton() as server:
        yield server


@pytest.fixture
def target(embedded: EmbeddedTriton, second: EmbeddedTriton) -> str:
    ports = ",".join(f"127.0.0.1:{server.ports.grpc}" for server in (embedded, second))
    return f"triton://{ports}/mlp?metrics={embedded.ports.metrics},{second.ports.metrics}"


@pytest.fixture
def backend(target: str) -> Iterator[Backend]:
    opened = connect(target)
    yield opened
    another = connect(target)  # the test may have closed the first
    another.apply(another.space.default)
    another.close()
    opened.close()


class TestContract(BackendContract):
    """A group is held to all that one server is."""

    below = -1.0

    @pytest.fixture
    def backend(self, backend: Backend) -> Backend:
        return backend

    @pytest.fixture
    def traffic(self, backend: Backend, embedded: EmbeddedTriton, second: EmbeddedTriton) -> Traffic:
        def send(count: int) -> None:
            wanted = backend.counters().requests + count
            sender(embedded.target)(count - count // 2)
            sender(second.target)(count // 2)
            counted(backend, wanted)

        return send


def test_load_goes_to_both(backend: Backend, embedded: EmbeddedTriton, second: EmbeddedTriton) -> None:
    """By turns, and each counts its half."""
    each = [connect(server.target) for server in (embedded, second)]
    assert isinstance(backend, ReplicaGroup)
    with LoadGenerator(backend.endpoint(), "constant:60") as load:
        eventually(lambda: load.totals().answered > 42)
    totals = load.totals()
    eventually(lambda: sum(one.counters().requests for one in each) > totals.sent)  # one was tried at first
    counts = [one.counters().requests for one in each]

    assert totals.failed == 0
    assert min(counts) == pytest.approx(max(counts), abs=2)
    for one in each:
        one.close()
