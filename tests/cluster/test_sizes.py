"""Workloads with sizes and a number of requests: their sizes, and the same requests at every rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tuner.cluster.arrivals import ArrivalProcess
from tuner.cluster.requests import AtOnce, Chunk, RequestStream
from tuner.workload.schedule import RateSchedule
from tuner.workload.sizes import gaussian_sizes, paper_sizes

SIZES = (paper_sizes(), gaussian_sizes(100, 20))


def stream(
    rates: Sequence[float] = (30.0, 10.0), whole_ms: bool = False, chunk: int = 10_001
) -> RequestStream:
    processes = [ArrivalProcess(schedule=RateSchedule.constant(rate), whole_ms=whole_ms) for rate in rates]
    return RequestStream(processes, sizes=SIZES[: len(rates)], count=10_000, seed=1, chunk=chunk)


def everything(stream: RequestStream) -> tuple[np.ndarray, ...]:
    """Times, sessions and items of all requests."""
    parts: list[Chunk] = []
    while not parts or parts[-1].until < math.inf:
        parts.append(stream.next_chunk())
    assert stream.next_chunk().time.size == 0
    return tuple(
        np.concatenate([getattr(part, name) for part in parts]) for name in ("time", "session", "items")
    )


def test_as_many_as_asked_for() -> None:
    """The number of requests is exact; they come at the sessions' rates, with the sizes of their session."""
    time, session, items = everything(stream())

    assert time.size == 10_000
    assert (np.diff(time) >= 0).all()
    assert time.size / time[-1] == pytest.approx(40, rel=0.03)
    assert (session == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert items[session == 1].mean() == pytest.approx(100, rel=0.02)
    assert items[session == 0].mean() == pytest.approx(paper_sizes().mean, rel=0.02)


def test_the_last_arrival_is_known_before() -> None:
    """The time of the last request is that of the stream."""
    assert stream().last_arrival() == everything(stream())[0][-1]


def test_another_rate_gives_the_same_requests_faster() -> None:
    """Twice the rate halves all times, and changes nothing else."""
    one, two = everything(stream()), everything(stream(rates=(60.0, 20.0)))

    np.testing.assert_allclose(one[0], 2 * two[0])
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(one[2], two[2])


def test_chunks_change_nothing() -> None:
    """However the stream is cut, it is the same."""
    whole, cut = everything(stream()), everything(stream(chunk=500))

    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rate", [100.0, 5000.0])
def test_gaps_of_whole_milliseconds(rate: float) -> None:
    """Integer gaps are whole milliseconds with the mean and the variance of a Poisson distribution."""
    time, _, _ = everything(stream(rates=(rate,), whole_ms=True))

    gaps = np.diff(time) * 1e3
    assert np.abs(gaps - np.round(gaps)).max() < 1e-6
    assert gaps.mean() == pytest.approx(1e3 / rate, rel=0.05)
    assert gaps.var() == pytest.approx(1e3 / rate, rel=0.05)


def test_all_at_once() -> None:
    """The oracle gets all requests at time 0, each session's in order of size, the same as in the stream."""
    requests = AtOnce(np.array([3.0, 1.0]), SIZES, count=10_000, seed=1)
    chunk = requests.next_chunk()

    assert chunk.until == math.inf
    assert chunk.time.size == 10_000
    assert not chunk.time.any()
    for session in (0, 1):
        assert (np.diff(chunk.items[chunk.session == session]) >= 0).all()
    assert (chunk.session == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert requests.next_chunk().time.size == 0


def test_requests_without_a_size_are_one_item() -> None:
    """A session without sizes beside one with sizes; where no session has any, neither has the stream."""
    processes = [ArrivalProcess(schedule=RateSchedule.constant(10.0)) for _ in range(2)]

    chunk = RequestStream(processes, sizes=(None, SIZES[0]), count=500, seed=1).next_chunk()

    assert set(chunk.items[chunk.session == 0].tolist()) == {1}
    assert chunk.items[chunk.session == 1].min() > 1
    assert RequestStream(processes, sizes=(None, None), count=500).next_chunk().items.size == 0


def test_renewal_processes_end_with_the_last_request() -> None:
    """A number of requests ends any stream; afterwards nothing arrives."""
    process = ArrivalProcess(schedule=RateSchedule.constant(10.0), shape=0.5)
    stream = RequestStream([process], count=700, chunk=256)

    time, _, _ = everything(stream)

    assert time.size == 700
    assert stream.next_chunk().until == math.inf
