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
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tuner.adapters import Backend, Counters
from tuner.errors import InvalidInput, Refused
from tuner.knobs import ApplyCost, Configuration

__all__ = ["BackendContract", "Traffic"]

Traffic = Callable[[int], None]
"""Sends a number of requests of one row, and returns when all are answered and counted."""


class BackendContract:
    """Inherit, and give the fixtures ``backend`` and ``traffic``; ``refused`` where the server can refuse."""

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

    @pytest.mark.parametrize("case", ["unknown", "missing", "low", "nan"])
    def test_unusable_configuration_is_not_sent(self, backend: Backend, case: str) -> None:
        """An unknown or missing knob and a senseless value are the caller's mistakes; nothing changes."""
        before = backend.current()
        name = backend.space.names[0]
        unusable = {
            "unknown": before.replace(no_such_knob=1.0),
            "missing": Configuration({key: value for key, value in before.items() if key != name}),
            "low": before.replace(**{name: -1.0}),
            "nan": before.replace(**{name: float("nan")}),
        }

        with pytest.raises(InvalidInput, match="no_such_knob" if case == "unknown" else name):
            backend.apply(unusable[case])

        assert backend.current() == before

    def test_counts_traffic(self, backend: Backend, traffic: Traffic) -> None:
        """Totals begin at 0 and then hold each request, its time, and the batch it was in."""
        start = backend.counters()
        traffic(20)

        counters = backend.counters()

        assert (start.requests, start.failures, start.restarts) == (0, 0, 0)
        assert counters.requests == counters.inferences == 20
        assert counters.failures == 0
        assert int(counters.batch_counts @ np.arange(len(counters.batch_counts))) == 20
        assert counters.batch_counts[0] == 0
        assert 0 < counters.compute <= counters.latency
        assert 0 <= counters.queue <= counters.latency
        assert counters.time > start.time

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

        assert readings[-1].requests == 15
        for earlier, later in pairwise(readings):
            assert_grown(earlier, later)

    def test_profile_is_learned_from_traffic(self, backend: Backend, traffic: Traffic) -> None:
        """There is no profile before the first execution; then l(1) is the mean time of an execution."""
        assert backend.profile() is None
        traffic(20)

        profile = backend.profile()

        counters = backend.counters()
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
    for name in ("time", "requests", "failures", "latency", "queue", "compute", "inferences", "restarts"):
        assert getattr(later, name) >= getattr(earlier, name), name
    assert len(later.batch_counts) == len(earlier.batch_counts)
    assert (later.batch_counts >= earlier.batch_counts).all()
    assert (later.batch_seconds >= earlier.batch_seconds).all()
