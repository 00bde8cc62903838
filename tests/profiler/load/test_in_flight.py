"""The knob of our own clients: how many of their requests are in flight."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.adapters.replicas.bed import Server
from tests.builders import configuration
from tests.profiler.inference_service import NOTHING, InferenceService, serving
from tests.waiting import LONGEST, eventually
from tuner.adapters import Backend, Grids
from tuner.adapters.deployment import deployed_anew
from tuner.adapters.replicas.canary import Canary
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.adapters.scaling import Replicated
from tuner.envs.simulator.backend import SimulatedTriton
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput, Refused
from tuner.knobs import ApplyCost, Configuration
from tuner.profiler.attachment import _with_client_limit, attach
from tuner.profiler.load.generator import LoadGenerator
from tuner.profiler.load.in_flight import IN_FLIGHT, WithInFlight
from tuner.setting import Load
from tuner.testing.backend import BackendContract, Traffic
from tuner.workload.schedule import RateSchedule


class FakeLoad:
    """Clients that only remember their limit."""

    in_flight = 8

    def set_in_flight(self, most: int) -> None:
        self.in_flight = most


def limited(backend: Backend, load: Any = None) -> WithInFlight:
    clients: Any = load or FakeLoad()
    return WithInFlight(backend, clients, (2.0, 8.0))


class TestContract(BackendContract):
    """With the knob a backend is still a backend."""

    below = -1.0

    @pytest.fixture
    def server(self) -> SimulatedTriton:
        silence = RateSchedule(steps=((0.0, 0.0), (1e9, 1.0)))
        return SimulatedTriton(ServerModel(), silence, shape=math.inf)

    @pytest.fixture
    def backend(self, server: SimulatedTriton) -> Backend:
        return limited(server)

    @pytest.fixture
    def traffic(self, server: SimulatedTriton) -> Traffic:
        def send(count: int) -> None:
            server.offer(RateSchedule(steps=((0.0, 100.0), (count / 100, 0.0), (1e9, 1.0))))
            server.sleep(count / 100 + 1.0)

        return send

    @pytest.fixture
    def reopen(self) -> Callable[[Grids], Backend]:
        pytest.skip("the target's adapter is tested with its own grids")


class RefusingServer(SimulatedTriton):
    """A server that takes no change."""

    def apply(self, configuration: Configuration) -> Any:
        raise Refused("no memory is left")


def test_clients_stay_as_they_are_if_the_server_refuses() -> None:
    """A change is all or nothing."""
    load = FakeLoad()
    backend = limited(RefusingServer(ServerModel(), RateSchedule(steps=((0.0, 0.0), (1e9, 1.0)))), load)

    with pytest.raises(Refused):
        backend.apply(Configuration({**backend.current(), "max_batch_size": 8.0, IN_FLIGHT: 2.0}))

    assert load.in_flight == 8


def test_the_knob_alone_changes_nothing_on_the_server() -> None:
    """It costs nothing, and takes effect at once."""
    backend = limited(SimulatedTriton(ServerModel(), RateSchedule(steps=((0.0, 0.0), (1e9, 1.0)))))

    report = backend.apply(Configuration({**backend.current(), IN_FLIGHT: 2.0}))

    assert (report.changed, report.cost, report.settle) == (True, ApplyCost.FREE, 0.0)
    assert report.configuration[IN_FLIGHT] == 2.0


@pytest.mark.parametrize("limit", [2.0, 8.0])
def test_what_a_change_of_the_server_costs_is_its_own_count(limit: float) -> None:
    """Whether the clients' limit changes with it or not: else all that came meanwhile would be charged."""
    server = Server("a")
    server.affected = 3.0
    backend = limited(server)

    report = backend.apply(backend.current().replace(max_batch_size=8.0, max_in_flight=limit))

    assert (report.changed, report.cost, report.settle) == (True, ApplyCost.RELOAD, 1.5)
    assert report.affected == 3.0
    assert report.configuration == Configuration({**configuration(batch=8), IN_FLIGHT: limit})


@pytest.mark.parametrize("replicas", [False, True])
def test_that_the_model_was_deployed_anew_shows_with_the_knob_too(replicas: bool) -> None:
    """Its own knobs have to be read anew, beside that of the clients."""
    server, load = Server("a"), FakeLoad()
    served: Any = (
        ReplicaGroup(Membership("fake://all", lambda: ["a"], lambda _: server)) if replicas else server
    )
    with closing(served):
        backend = _with_client_limit(served, load, (2.0, 8.0))  # type: ignore[arg-type]
        assert deployed_anew(backend) == ""

        server.deployed_anew = "it is another one"  # type: ignore[attr-defined]

        assert deployed_anew(backend) == ("a: " if replicas else "") + "it is another one"


def test_replicas_are_still_replicas() -> None:
    """What each runs can be seen, and one tries a change first; the clients' limit is no server's knob."""
    servers = {name: Server(name) for name in ("a", "bb", "ccc")}
    load: Any = FakeLoad()
    waits: list[float] = []
    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        backend = _with_client_limit(group, load, (2.0, 8.0))
        before = backend.current()
        assert isinstance(backend, Canary)
        assert isinstance(backend, Replicated)

        trial = backend.try_one(before.replace(max_batch_size=8.0, max_in_flight=2.0), waits.append)

        assert trial is not None
        assert (trial.server, waits, load.in_flight, backend.replicas) == ("a", [1.5], 8, 3)
        assert servers["a"].running == configuration(batch=8)
        assert backend.configurations() == [before.replace(max_batch_size=8.0), before, before]
        backend.take_back()
        assert backend.configurations() == [before] * 3


def test_the_knob_alone_is_tried_on_no_replica() -> None:
    """There is nothing that one of them could run before the others."""
    servers = {name: Server(name) for name in ("a", "bb")}
    load: Any = FakeLoad()
    waits: list[float] = []
    with closing(ReplicaGroup(Membership("fake://all", lambda: list(servers), servers.__getitem__))) as group:
        backend = _with_client_limit(group, load, (2.0, 8.0))
        assert isinstance(backend, Canary)

        assert backend.try_one(backend.current().replace(max_in_flight=2.0), waits.append) is None

    assert waits == []
    assert [server.applied for server in servers.values()] == [[], []]


def generator(service: InferenceService) -> LoadGenerator:
    """A load generator that sends nothing yet, and waits for answers."""
    return LoadGenerator(service.endpoint(), NOTHING, timeout=LONGEST, grace=LONGEST)


def test_no_more_are_in_flight_and_all_are_answered() -> None:
    """Forty requests, two at a time; how long the others wait here is counted as latency."""
    with serving() as service, generator(service) as load:
        load.set_in_flight(2)
        start = time.monotonic()
        with service.held():
            load.set_arrival("constant:200")
            eventually(lambda: load.totals().sent >= 40 and service.open == 2)
            load.set_arrival(NOTHING)
            held_until = time.monotonic()
        sample = load.sample(start, time.monotonic())

    assert load.totals().sent == load.totals().answered >= 40
    assert service.most_open == 2
    assert (sample.latency >= held_until - sample.intended).all()


def test_a_limit_is_changed_while_requests_wait() -> None:
    """What is held back goes out at once when more may be in flight."""
    with serving() as service, generator(service) as load:
        load.set_in_flight(1)
        with service.held():
            load.set_arrival("constant:200")
            eventually(lambda: load.totals().sent > 32 and service.open == 1)
            assert service.most_open == 1
            load.set_arrival(NOTHING)
            load.set_in_flight(32)
            eventually(lambda: service.open == 32)

    assert load.totals().sent == load.totals().answered
    assert service.most_open == 32


@pytest.mark.parametrize("grid", [(0.0, 4.0), (1.5,), (-1.0, 2.0)])
def test_a_grid_holds_numbers_of_requests(grid: tuple[float, ...]) -> None:
    """Others are refused, with the setting."""
    server = SimulatedTriton(ServerModel(), RateSchedule(steps=((0.0, 0.0), (1e9, 1.0))))

    with pytest.raises(InvalidInput, match="knob max_in_flight"):
        WithInFlight(server, FakeLoad(), grid)  # type: ignore[arg-type]  # all that is used of a generator


def test_only_requests_of_our_own_have_the_knob() -> None:
    """A simulated server has its own clients."""
    with (
        pytest.raises(InvalidInput, match="our own requests to a live server"),
        attach("sim://mlp", grids={IN_FLIGHT: (4.0, 8.0)}, load=Load(rate=50.0)),
    ):
        pass
