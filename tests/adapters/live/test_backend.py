"""A third adapter, made of the shared halves alone, is held to the contract of all backends."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from tuner.adapters.backend import Backend, Counters
from tuner.adapters.connection.client import ControlClient
from tuner.adapters.connection.target import LiveTarget, TargetForm, parse_live_target
from tuner.adapters.live.backend import OUT_OF_SIGHT, Capabilities, Change, LiveBackend
from tuner.adapters.live.knobs import BATCH_GRID, DELAY_GRID, KnobKind, batch_kind, delay_kind
from tuner.errors import InvalidInput, ReadOnly, Refused
from tuner.knobs import ApplyCost, Configuration, Grids, KnobSpace
from tuner.testing.backend import BackendContract

FORM = TargetForm(scheme="toy", port=1, options={}, example="toy://host:1/model")
KINDS = {"size": batch_kind(64), "wait": delay_kind("size")}


class ToyServer:
    """A server in memory. It refuses batches of 32, and executes each request alone in a millisecond."""

    def __init__(self) -> None:
        self.running = Configuration(size=1.0, wait=0.0)
        self.requests = 0
        self.largest_request = 1
        self.read_only: list[str] = []
        self.closed = 0

    def send(self, count: int) -> None:
        self.requests += count

    def run(self, configuration: Configuration) -> None:
        if configuration["size"] == 32:
            raise Refused("too large")
        self.running = configuration

    def close(self) -> None:
        self.closed += 1


class ToyClient(ControlClient[LiveTarget]):
    """A connection to the server that the test has made."""

    title = "Toy"

    def __init__(self, target: LiveTarget, server: ToyServer) -> None:
        self.server = server
        super().__init__(target)

    def _connect(self) -> ToyServer:
        return self.server

    def _failure(self, error: Exception) -> tuple[str, str] | None:
        return None


class ToyBackend(LiveBackend[LiveTarget, ToyClient]):
    """What this adapter does differently from others."""

    wire = "tuner.adapters.triton.wire"
    usual_settle = 0.5
    target = "toy://host/model"

    def __init__(self, server: ToyServer, grids: Grids | None = None) -> None:
        self.server = server
        super().__init__(self.target, grids)

    def _parse(self, target: str) -> LiveTarget:
        return parse_live_target(target, FORM)[0]

    def _connect(self) -> ToyClient:
        return ToyClient(self._target, self.server)

    def _open(self, grids: Grids) -> KnobSpace:
        if not set(grids) <= set(KINDS):
            raise InvalidInput(f"knob {min(set(grids) - set(KINDS))}", "unknown")
        self._found, self._first = self.server.running, self.server.requests
        chosen = {"size": BATCH_GRID, "wait": DELAY_GRID, **grids}
        return KnobSpace([KINDS[name].knob(name, grid) for name, grid in chosen.items()])

    def _inspect(self, processes: tuple[int, ...]) -> Capabilities:
        return Capabilities(
            server="toy", version="1", quantiles=False, read_only=self.server.read_only, notes=["a toy"]
        )

    def _endpoint_options(self) -> dict[str, str]:
        return {"colour": "red"}

    def _kind_of(self, knob: str) -> KnobKind:
        return KINDS[knob]

    def current(self) -> Configuration:
        return self.server.running

    def _check_writable(self) -> None:
        if self.server.read_only:
            raise ReadOnly("; ".join(self.server.read_only))

    def _largest_request(self, running: Configuration) -> int:
        return self.server.largest_request

    def _change(self, running: Configuration, wanted: Configuration) -> Change:
        self.server.run(wanted)
        return Change(configuration=self.current(), affected=3.0)

    def _put_back(self) -> Change | None:
        if self.server.running == self._found:
            return None
        self.server.run(self._found)
        return Change(configuration=self._found, cost=ApplyCost.RESTART)

    def _count(self, now: float) -> Counters:
        requests = self.server.requests - self._first
        counts, seconds = self._batches()
        return Counters(
            time=now,
            requests=requests,
            failures=0,
            latency=requests * 0.002,
            queue=requests * 0.001,
            compute=requests * 0.001,
            inferences=requests,
            batch_counts=counts,
            batch_seconds=seconds,
        )

    def _batches(self) -> tuple[np.ndarray, np.ndarray]:
        counts = np.array([0, self.server.requests - self._first])
        return counts, counts * 0.001


@pytest.fixture
def server() -> ToyServer:
    return ToyServer()


@pytest.fixture
def backend(server: ToyServer) -> ToyBackend:
    return ToyBackend(server)


class TestContract(BackendContract):
    """It does all that callers rely on."""

    below = -1.0

    @pytest.fixture
    def backend(self, server: ToyServer) -> ToyBackend:
        return ToyBackend(server, {"size": (1.0, 2.0, 8.0, 32.0)})

    @pytest.fixture
    def traffic(self, server: ToyServer) -> Callable[[int], None]:
        return server.send

    @pytest.fixture
    def reopen(self, server: ToyServer) -> Callable[[Grids], Backend]:
        return lambda grids: ToyBackend(server, grids)

    @pytest.fixture
    def refused(self) -> Configuration:
        return Configuration(size=32.0, wait=0.0)


def test_description_says_what_is_limited(backend: ToyBackend, server: ToyServer) -> None:
    """Why it cannot be written first, then the server's own notes, then what cannot be seen from here."""
    server.read_only = ["no", "never"]

    description = backend.describe()

    assert description.notes == ("no", "never", "a toy", OUT_OF_SIGHT)
    assert (description.target, description.model) == ("toy://host/model", "model")
    assert not description.writable


def test_a_server_that_takes_no_changes_is_not_asked(backend: ToyBackend, server: ToyServer) -> None:
    """Where that is known beforehand; what runs already may be applied."""
    server.read_only = ["no"]

    with pytest.raises(ReadOnly, match="no"):
        backend.apply(Configuration(size=8.0, wait=0.0))

    assert not backend.apply(server.running).changed


def test_what_runs_already_needs_no_value_that_could_be_set(backend: ToyBackend, server: ToyServer) -> None:
    """Its operator may have set any; only where that would have to be set again is it refused."""
    server.running = theirs = Configuration(size=8.0, wait=2.0)

    backend.check(theirs)
    assert not backend.apply(theirs).changed
    backend.apply(Configuration(size=4.0, wait=0.0))
    with pytest.raises(InvalidInput, match="knob wait: 2 is not between 0 and 1"):
        backend.apply(theirs)
    assert server.running == Configuration(size=4.0, wait=0.0)


def test_the_report_of_a_change(backend: ToyBackend) -> None:
    """Its cost is the dearer of the knobs' and the change's own, and the server may settle."""
    report = backend.apply(Configuration(size=8.0, wait=0.001))

    assert (report.cost, report.settle, report.affected) == (ApplyCost.RELOAD, 0.5, 3.0)
    assert backend.restore().cost is ApplyCost.RESTART
    assert not backend.restore().changed


def test_a_delay_without_batches_is_no_delay(backend: ToyBackend) -> None:
    """Such configurations differ in name only, so nothing is changed."""
    assert not backend.apply(Configuration(size=1.0, wait=0.002)).changed


def test_no_limit_below_the_rows_of_requests(backend: ToyBackend, server: ToyServer) -> None:
    """The server would refuse those; without batching there is no limit, and some servers split them."""
    server.largest_request = 6

    with pytest.raises(InvalidInput, match="knob size: 4 is below 6, the rows that clients may send"):
        backend.apply(Configuration(size=4.0, wait=0.0))

    server.largest_request = 1  # the largest that was ever seen counts
    with pytest.raises(InvalidInput, match="below 6"):
        backend.apply(Configuration(size=4.0, wait=0.0))
    backend._splits_requests = True
    assert backend.apply(Configuration(size=4.0, wait=0.0)).changed
    assert backend.apply(Configuration(size=1.0, wait=0.0)).changed


def test_it_says_before_a_change_whether_it_would_take_it(backend: ToyBackend, server: ToyServer) -> None:
    """So that of several none is changed if one would not."""
    server.largest_request = 6

    with pytest.raises(InvalidInput, match="below 6"):
        backend.check(Configuration(size=4.0, wait=0.0))
    backend.check(Configuration(size=8.0, wait=0.0))
    server.read_only = ["no"]
    with pytest.raises(ReadOnly):
        backend.check(Configuration(size=8.0, wait=0.0))
    backend.check(server.running)
    assert server.running == Configuration(size=1.0, wait=0.0)


def test_endpoint_names_the_model_and_what_else_the_server_wants(backend: ToyBackend) -> None:
    """A load generator needs no more."""
    endpoint = backend.endpoint()

    assert (endpoint.wire, endpoint.address, endpoint.model) == (ToyBackend.wire, "host:1", "model")
    assert endpoint.options == {"colour": "red"}


def test_a_failed_opening_leaves_no_connection(server: ToyServer) -> None:
    """Nobody would close it."""
    with pytest.raises(InvalidInput):
        ToyBackend(server, {"colour": (1.0,)})

    assert server.closed == 1


def test_readings_have_the_time(backend: ToyBackend) -> None:
    """It is read from the caller's clock."""
    before = time.monotonic()

    assert before <= backend.counters().time <= time.monotonic()
