"""The queries that arrive: as many as asked for, of the right sizes, the same at every rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.cluster.mixed import workload as module
from tuner.cluster.mixed.workload import AtOnce, QueryWorkload
from tuner.cluster.workload import ArrivalProcess
from tuner.planning.pools.sizes import gaussian_sizes, paper_sizes
from tuner.workload.load import RateSchedule

SIZES = (paper_sizes(), gaussian_sizes(100, 20))


def stream(rates=(30.0, 10.0), count=10_000, seed=1, whole_ms=False):
    processes = [ArrivalProcess(schedule=RateSchedule.constant(rate), whole_ms=whole_ms) for rate in rates]
    return QueryWorkload(processes, SIZES[: len(rates)], count=count, seed=seed)


def everything(workload):
    """Times, sessions and items of all queries."""
    parts = []
    while not parts or parts[-1].until < math.inf:
        parts.append(workload.next_chunk())
    assert workload.next_chunk().time.size == 0
    return tuple(
        np.concatenate([getattr(part, name) for part in parts]) for name in ("time", "session", "items")
    )


def test_as_many_as_asked_for():
    """There are exactly so many queries, at the sessions' rates, of the sizes of their session."""
    time, session, items = everything(stream())

    assert time.size == 10_000
    assert (np.diff(time) >= 0).all()
    assert time.size / time[-1] == pytest.approx(40, rel=0.03)
    assert (session == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert items[session == 1].mean() == pytest.approx(100, rel=0.02)
    assert items[session == 0].mean() == pytest.approx(paper_sizes().mean, rel=0.02)


def test_the_last_arrival_is_known_before():
    """The time of the last query is that of the stream."""
    assert stream().last_arrival() == everything(stream())[0][-1]


def test_another_rate_gives_the_same_queries_faster():
    """Twice the rate halves all times, and changes nothing else."""
    one, two = everything(stream()), everything(stream(rates=(60.0, 20.0)))

    np.testing.assert_allclose(one[0], 2 * two[0])
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(one[2], two[2])


def test_chunks_change_nothing(monkeypatch):
    """However the stream is cut, it is the same."""
    whole = everything(stream())
    monkeypatch.setattr(module, "LARGEST_CHUNK", 500)
    cut = everything(stream())

    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rate", [100.0, 5000.0])
def test_gaps_of_whole_milliseconds(rate):
    """Integer gaps are whole milliseconds with the mean and the variance of a Poisson distribution."""
    time, _, _ = everything(stream(rates=(rate,), whole_ms=True))

    gaps = np.diff(time) * 1e3
    assert np.abs(gaps - np.round(gaps)).max() < 1e-6
    assert gaps.mean() == pytest.approx(1e3 / rate, rel=0.05)
    assert gaps.var() == pytest.approx(1e3 / rate, rel=0.05)


def test_all_at_once():
    """The oracle gets all queries at time 0, each session's in order of size, the same as in the stream."""
    workload = AtOnce(np.array([3.0, 1.0]), SIZES, count=10_000, seed=1)
    chunk = workload.next_chunk()

    assert chunk.until == math.inf
    assert chunk.time.size == 10_000
    assert not chunk.time.any()
    for session in (0, 1):
        assert (np.diff(chunk.items[chunk.session == session]) >= 0).all()
    assert (chunk.session == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert workload.next_chunk().time.size == 0
