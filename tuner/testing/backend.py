"""What every serving backend must do, as tests to inherit.

An adapter's test module subclasses :class:`BackendContract` and gives the fixtures::

    class TestTriton(BackendContract):
        @pytest.fixture
        def backend(self, embedded):
            backend = connect(embedded.target)
            yield backend
            backend.close()

        @pytest.fixture
        def traffic(self, embedded): ...

What only some servers count (:class:`~tuner.adapters.backend.Counters` says which) is tested where the
adapter reports it. A few tests are skipped unless the subclass gives what they need: ``refused``,
``restart``, ``below``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest

from tuner.adapters import Backend, Counters, Grids, Loadable, connect
from tuner.errors import InvalidInput, Refused
from tuner.knobs import ApplyCost, Configuration

__all__ = ["BackendContract", "Traffic"]

Traffic = Callable[[int], None]
"""Sends a number of requests of one row, and returns when all are answered and counted."""


class BackendContract:
    """Inherit, and give the fixtures ``backend`` and ``traffic``; others where the server can do more."""

    shared = False
    """Whether others send requests to the server while it is tested: totals then hold theirs, too."""
    below: float | None = None
    """A finite value that the first knob cannot have, such as -1; None if it takes every one."""

    @pytest.fixture
    def backend(self) -> Backend:
        """A fresh backend that runs the default of its space; anything else is put back by the fixture."""
        raise NotImplementedError

    @pytest.fixture
    def traffic(self, backend: Backend) -> Traffic:
        """Send requests to the backend."""
        raise NotImplementedError

    @pytest.fixture
    def refused(self) -> Configuration:
        """A configuration that only the server itself knows to refuse."""
        pytest.skip("this server refuses nothing that its knobs allow")

    @pytest.fixture
    def restart(self) -> Callable[[], None]:
        """Restart the server, or do what makes it count from 0 again; return when it serves."""
        pytest.skip("this server cannot be restarted by a test")

    @pytest.fixture
    def reopen(self, backend: Backend) -> Callable[[Grids], Backend]:
        """Open the same target once more, with grids in the place of the adapter's own."""
        return lambda grids: connect(backend.describe().target, grids)

    @pytest.fixture
    def other(self, backend: Backend) -> Configuration:
        """A configuration that differs from the present one in every knob."""
        present = backend.current()
        return Configuration(
            {
                knob.name: max(knob.grid, key=lambda v: (v != present[knob.name], -v))
                for knob in backend.space.knobs
            }
        )

    def test_describes_itself(self, backend: Backend) -> None:
        """The description names the server and the model, and says why it cannot be written if it cannot."""
        description = backend.describe()

        assert description.server
        assert description.model
        assert description.writable or description.notes
        assert description.quantiles or description.quantile_memory == 0

    def test_current_has_every_knob(self, backend: Backend) -> None:
        """The present configuration gives every knob of the space a value."""
        assert set(backend.current()) == set(backend.space.names)

    def test_apply_is_read_back(self, backend: Backend, other: Configuration) -> None:
        """After applying, the report says what the server runs, what it cost, and how long to wait."""
        before = backend.current()

        report = backend.apply(other)

        assert report.changed
        assert report.configuration == backend.current() != before
        assert report.cost >= backend.space.apply_cost(before, other)
        assert report.seconds >= 0
        assert report.settle >= 0

    def test_apply_twice_changes_once(self, backend: Backend, other: Configuration) -> None:
        """Applying what runs already does nothing."""
        backend.apply(other)

        again = backend.apply(other)

        assert not again.changed
        assert again.cost is ApplyCost.FREE
        assert again.configuration == backend.current()

    def test_apply_goes_back(self, backend: Backend, other: Configuration) -> None:
        """What was found can be applied again."""
        before = backend.current()
        backend.apply(other)

        report = backend.apply(before)

        assert report.configuration == backend.current() == before

    def test_refused_configuration_leaves_the_old_one(
        self, backend: Backend, traffic: Traffic, refused: Configuration
    ) -> None:
        """A configuration that the server refuses raises, and the old one still serves."""
        before = backend.current()

        with pytest.raises(Refused):
            backend.apply(refused)

        assert backend.current() == before
        traffic(2)

    @pytest.mark.parametrize("case", ["unknown", "missing", "below", "nan", "infinite"])
    def test_unusable_configuration_is_not_sent(self, backend: Backend, case: str) -> None:
        """An unknown or missing knob and a senseless value are the caller's mistakes; nothing changes."""
        before = backend.current()
        name = backend.space.names[0]
        if case == "below" and self.below is None:
            pytest.skip("its first knob takes every finite value")
        unusable = {
            "unknown": before.replace(no_such_knob=1.0),
            "missing": Configuration({key: value for key, value in before.items() if key != name}),
            "below": before.replace(**{name: self.below or 0.0}),
            "nan": before.replace(**{name: math.nan}),
            "infinite": before.replace(**{name: math.inf}),
        }

        with pytest.raises(InvalidInput, match="no_such_knob" if case == "unknown" else name):
            backend.apply(unusable[case])

        assert backend.current() == before

    def test_grids_replace_its_own(self, backend: Backend, reopen: Callable[[Grids], Backend]) -> None:
        """The user's grid of a knob is taken as it is, and the other knobs keep theirs."""
        first, *others = backend.space.knobs
        wanted = first.grid[:1] + first.grid[-1:] if len(first.grid) > 1 else first.grid

        opened = reopen({first.name: wanted})

        found = {knob.name: knob.grid for knob in opened.space.knobs}
        opened.close()
        assert found[first.name] == wanted
        assert set(found) <= {first.name, *(knob.name for knob in others)}

    @pytest.mark.parametrize("grids", [{"no_such_knob": (1.0, 2.0)}, {"": (math.nan,)}])
    def test_unusable_grids_are_refused(
        self, backend: Backend, reopen: Callable[[Grids], Backend], grids: dict[str, tuple[float, ...]]
    ) -> None:
        """A knob that there is not, and a value that is none; the message names the knob."""
        name = next(iter(grids)) or backend.space.names[0]

        with pytest.raises(InvalidInput, match=name):
            reopen({name: next(iter(grids.values()))})

    def test_counts_traffic(self, backend: Backend, traffic: Traffic) -> None:
        """Totals begin at 0, and then hold each request, its time, and its batch where that is counted."""
        start = backend.counters()
        traffic(20)

        counters = backend.counters()

        assert self.shared or (start.requests, start.failures, start.restarts) == (0, 0, 0)
        assert counters.time > start.time
        work = counters.since(start)
        assert work.requests == 20 or (self.shared and work.requests > 20)
        assert counters.failures == start.failures
        assert not counters.latency <= 0
        assert not counters.compute <= 0
        assert not counters.queue < 0
        for part in (counters.queue, counters.compute):
            assert not part > counters.latency
        if counters.inferences:
            assert work.inferences == work.requests or self.shared
        if len(counters.batch_counts):
            sizes = np.arange(len(work.batch_counts))
            assert int(work.batch_counts @ sizes) == (work.inferences or work.requests)
            assert counters.batch_counts[0] == 0
            assert len(counters.batch_seconds) == len(counters.batch_counts)

    def test_quantiles_are_those_of_the_requests(self, backend: Backend, traffic: Traffic) -> None:
        """If it says that it has quantiles it exports them, in order, or a histogram; else neither."""
        start = backend.counters()
        traffic(20)

        counters = backend.counters()

        histogram = counters.latencies is not None
        assert backend.describe().quantiles == (histogram or bool(counters.quantiles))
        assert all(0 <= share <= 1 and seconds > 0 for share, seconds in counters.quantiles.items())
        ordered = [seconds for _, seconds in sorted(counters.quantiles.items())]
        assert ordered == sorted(ordered)
        if counters.latencies is not None and start.latencies is not None:
            since = counters.latencies.since(start.latencies)
            assert since.counts.sum() == counters.requests - start.requests
            assert (np.diff(since.bounds) > 0).all()
            assert 0 < since.quantile(0.5) <= since.quantile(0.95)

    def test_totals_never_fall_over_changes(
        self, backend: Backend, traffic: Traffic, other: Configuration
    ) -> None:
        """Changing the configuration there and back again leaves the totals growing."""
        before = backend.current()
        readings = [backend.counters()]

        for configuration in (other, before, other):
            traffic(5)
            readings.append(backend.counters())
            backend.apply(configuration)
            readings.append(backend.counters())

        came = readings[-1].requests - readings[0].requests
        assert came == 15 or (self.shared and came > 15)
        for earlier, later in pairwise(readings):
            assert_grown(earlier, later)

    def test_totals_never_fall_over_a_restart(
        self, backend: Backend, traffic: Traffic, restart: Callable[[], None]
    ) -> None:
        """The server begins to count at 0 again; the totals go on, and say that this happened."""
        traffic(5)
        before = backend.counters()
        restart()
        traffic(3)

        after = backend.counters()

        assert after.restarts > before.restarts
        assert_grown(before, after)
        assert after.requests == before.requests + 3 or self.shared

    def test_clients_find_the_way(self, backend: Backend) -> None:
        """Where requests can be sent to it: plain values, and a module that makes the requests."""
        if not isinstance(backend, Loadable):
            pytest.skip("no requests of our own can be sent to it")
        endpoint = backend.endpoint()

        wire = import_module(endpoint.wire)

        assert json.loads(json.dumps(dataclasses.asdict(endpoint))) == dataclasses.asdict(endpoint)
        assert all(one.address.rpartition(":")[2].isdigit() for one in endpoint.replicas)
        assert wire.METHOD.startswith("/")
        assert callable(wire.read_inputs)
        assert callable(wire.encode)

    def test_profile_is_learned_from_traffic(self, backend: Backend, traffic: Traffic) -> None:
        """There is none before the first execution; then, if batches are timed, l(1) is their mean time."""
        assert self.shared or backend.profile() is None
        traffic(20)

        profile = backend.profile()

        counters = backend.counters()
        if not counters.batch_seconds.any():
            assert profile is None
            pytest.skip("it does not count the time in batches")
        assert profile is not None
        mean = counters.batch_seconds[1] / counters.batch_counts[1]
        assert profile.latency(1) == pytest.approx(mean, rel=0.2)

    def test_close_twice(self, backend: Backend) -> None:
        """Closing a second time does nothing."""
        backend.close()

        backend.close()


def assert_grown(earlier: Counters, later: Counters) -> None:
    """Check that no total is below what it was.

    Raises:
        AssertionError: One is.
    """
    sums = ("requests", "failures", "beyond_servers", "latency", "queue", "compute", "inferences", "restarts")
    for name in ("time", *sums):
        assert not getattr(later, name) < getattr(earlier, name), name  # NaN where nobody counts it
    largest = len(earlier.batch_counts)
    assert len(later.batch_counts) == len(later.batch_seconds) >= largest, (
        "larger batches may come, none goes"
    )
    assert (later.batch_counts[:largest] >= earlier.batch_counts).all()
    assert (later.batch_seconds[:largest] >= earlier.batch_seconds).all()
