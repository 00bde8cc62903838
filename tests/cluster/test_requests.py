"""The stream of arrivals: rates, burstiness, schedules, merging, chunks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tuner.cluster.arrivals import ArrivalProcess, alias_table
from tuner.cluster.requests import RequestStream
from tuner.workload.schedule import RateSchedule


def process(rate: float, shape: float = 1.0) -> ArrivalProcess:
    return ArrivalProcess(schedule=RateSchedule.constant(rate), shape=shape)


MIXED = [
    process(300.0),
    ArrivalProcess(times=np.array([0.0, 0.5, 0.5, 3.0])),
    process(100.0, 0.1),
    process(200.0, math.inf),
    ArrivalProcess(schedule=RateSchedule(steps=((0.0, 50.0), (2.0, 0.0), (4.0, 500.0)))),
    process(60.0),
]


def take(stream: RequestStream, until: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All arrivals before a time: times, sessions, sources; checks what every chunk promises."""
    parts, begin = [], 0.0
    while begin < until:
        chunk = stream.next_chunk()
        assert chunk.time.size == chunk.session.size == chunk.source.size
        assert (chunk.time.dtype, chunk.session.dtype, chunk.source.dtype) == (float, np.int64, np.int64)  # type: ignore[comparison-overlap]
        assert (np.diff(chunk.time) >= 0).all()
        assert ((chunk.time >= begin) & (chunk.time < chunk.until)).all()
        assert chunk.until > begin
        parts.append(tuple(part.copy() for part in chunk[:3]))
        begin = chunk.until
    time, session, source = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return time[time < until], session[time < until], source[time < until]


def test_rates_of_poisson_sessions() -> None:
    """Each session gets its rate: counts within four standard deviations."""
    rates = [700.0, 200.0, 90.0, 10.0]

    _, session, _ = take(RequestStream([process(rate) for rate in rates], seed=1), 100.0)

    for index, rate in enumerate(rates):
        assert abs((session == index).sum() - 100 * rate) < 4 * math.sqrt(100 * rate)


@pytest.mark.parametrize("others", [0, 1])
def test_poisson_sessions_are_independent_and_poisson(others: int) -> None:
    """Gaps within one of several sessions are exponential: mean and coefficient of variation are right."""
    time, session, _ = take(
        RequestStream([process(50.0), process(150.0)] + others * [process(9.0, 5.0)]), 300.0
    )

    for index, rate in enumerate((50.0, 150.0)):
        gaps = np.diff(time[session == index])
        assert gaps.mean() * rate == pytest.approx(1, abs=4 / math.sqrt(gaps.size))
        assert gaps.std() / gaps.mean() == pytest.approx(1, rel=0.05)
    first, second = (np.histogram(time[session == i], 3000, (0, 300))[0] for i in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(3000)


@pytest.mark.parametrize("shape", [0.1, 0.5, 4.0, math.inf])
def test_burstiness_of_gamma(shape: float) -> None:
    """The coefficient of variation of the gaps is one over the root of the shape; the rate is kept."""
    time, _, _ = take(RequestStream([process(500.0, shape)], seed=2), 200.0)

    gaps = np.diff(time)
    expected = 1 / math.sqrt(shape)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.05, abs=1e-6)
    assert time.size == pytest.approx(100_000, rel=0.001 + 5 * expected / math.sqrt(100_000))


@pytest.mark.parametrize("shape", [0.05, 3.0, math.inf])
def test_many_sessions_are_stationary_from_the_beginning(shape: float) -> None:
    """Sessions are not in step: the first instants bring neither a burst nor a pause."""
    time, _, _ = take(RequestStream([process(1.0, shape) for _ in range(2000)], seed=3), 1.0)

    counts = np.histogram(time, 4, (0.0, 1.0))[0]
    spread = math.sqrt(500 * max(1, 1 / shape))
    assert (abs(counts - 500) < 4 * spread).all()


def test_schedules_step_where_they_say() -> None:
    """Arrivals come at the rate in force, and none while it is 0; the last rate goes on."""
    time, session, _ = take(RequestStream(MIXED, seed=4), 10.0)

    times = time[session == 4]
    assert (times < 2).sum() == pytest.approx(100, abs=40)
    assert ((times >= 2) & (times < 4)).sum() == 0
    assert (times >= 4).sum() == pytest.approx(3000, rel=0.08)


@pytest.mark.parametrize("shape", [1.0, math.inf, 0.2])
def test_schedules_of_any_shape(shape: float) -> None:
    """A gap under way when the rate changes goes on at the new rate."""
    steps = ((0.0, 10.0), (10.0, 1000.0))

    time, _, _ = take(
        RequestStream([ArrivalProcess(schedule=RateSchedule(steps=steps), shape=shape)], seed=5), 20.0
    )

    expected = np.array([0.0, 10.0, 20.0]), np.array([0.0, 100.0, 10_100.0])
    counts = np.searchsorted(time, expected[0])
    assert counts == pytest.approx(expected[1], abs=5 * math.sqrt(10_100 / shape) + 1)


def test_traces_are_given_as_they_are_and_end() -> None:
    """All times come once, those at one instant too; then nothing more, until infinity."""
    stream = RequestStream([MIXED[1], ArrivalProcess(times=np.array([0.25, 0.5]))])

    time, session, _ = take(stream, math.inf)

    assert time.tolist() == [0.0, 0.25, 0.5, 0.5, 0.5, 3.0]
    assert session.tolist() == [0, 1, 0, 0, 1, 0]
    last = stream.next_chunk()
    assert (last.time.size, last.until) == (0, math.inf)


def test_traces_do_not_end_the_others() -> None:
    """After the last time of a trace the other sessions go on."""
    time, session, _ = take(RequestStream(MIXED, seed=6), 20.0)

    assert (session == 1).sum() == 4
    assert set(session[time > 10].tolist()) == {0, 2, 3, 4, 5}


@pytest.mark.parametrize("processes", [MIXED, MIXED[:1], [MIXED[0], MIXED[5]], MIXED[2:4]])
def test_the_same_seed_gives_the_same_requests_however_cut(processes: list[ArrivalProcess]) -> None:
    """Chunks are a matter of memory only; another seed gives other requests."""
    whole = take(RequestStream(processes, seed=7, frontends=3), 20.0)
    parts = take(RequestStream(processes, seed=7, frontends=3, chunk=1), 20.0)
    other = take(RequestStream(processes, seed=8, frontends=3), 20.0)

    assert whole[0].size > 3000
    assert all(np.array_equal(one, two) for one, two in zip(whole, parts, strict=True))
    assert not np.array_equal(whole[0][:100], other[0][:100])


def test_another_rate_gives_the_same_requests_faster() -> None:
    """Rates are compared under the same luck."""
    slow = take(RequestStream([process(100.0), process(50.0), process(20.0, 0.3)], seed=9), 100.0)
    fast = take(RequestStream([process(200.0), process(100.0), process(40.0, 0.3)], seed=9), 50.0)

    assert np.allclose(slow[0], 2 * fast[0])
    assert np.array_equal(slow[1], fast[1])


def test_chunks_keep_memory_flat() -> None:
    """A chunk holds about as many requests as asked for, whatever arrives."""
    stream = RequestStream([process(1e6), process(1e5, 0.5)], chunk=4096)

    sizes = [stream.next_chunk().time.size for _ in range(50)]

    assert max(sizes) < 6000
    assert np.mean(sizes) == pytest.approx(4096, rel=0.1)


def test_rare_poisson_requests_make_no_huge_chunks() -> None:
    """Beside 10,000 requests/s of bursts, one every 5 s does not hold up the chunks, and is there."""
    stream = RequestStream([process(0.2), process(1e4, 0.5)], seed=3, chunk=1000)

    sizes, rare, until = [], 0, 0.0
    while until < 100.0:
        chunk = stream.next_chunk()
        until = chunk.until
        sizes.append(chunk.time.size)
        rare += int((chunk.session == 0).sum())

    assert max(sizes) < 2000
    assert 10 < rare < 35


def test_frontends_receive_alike() -> None:
    """Each frontend gets its share, as an exponential stream of its own would; one frontend is number 0."""
    _, _, source = take(RequestStream([process(1000.0)], seed=10, frontends=5), 50.0)
    _, _, single = take(RequestStream([process(1000.0)], seed=10), 50.0)

    assert np.bincount(source) == pytest.approx([10_000] * 5, rel=0.05)
    assert not single.any()


def test_sessions_of_unequal_rates_are_drawn_exactly() -> None:
    """The table of the alias method gives each place its share, to rounding."""
    weights = np.arange(1, 301) ** -0.9

    threshold, alias = alias_table(weights)

    share = threshold.copy()
    np.add.at(share, alias, 1 - threshold)
    assert share / 300 == pytest.approx(weights / weights.sum(), rel=1e-9)
    assert (alias_table(np.full(37, 3.0))[0] == 1).all()


def test_very_high_rates_never_go_back() -> None:
    """Gaps below the resolution of time make ties, not disorder."""
    stream = RequestStream([process(1e16), process(1e15)], chunk=256)

    for _ in range(200):
        stream._poisson._last = stream._poisson.until = 5.0  # as after long
        chunk = stream.next_chunk()
        assert (chunk.time >= 5.0).all()
        assert (chunk.time < chunk.until).all()


@pytest.mark.parametrize("bad", [{}, {"times": np.zeros(1), "schedule": RateSchedule.constant(1.0)}])
def test_a_process_is_one_thing(bad: dict[str, Any]) -> None:
    """Either a schedule or times."""
    with pytest.raises(ValueError, match="either"):
        ArrivalProcess(**bad)
    with pytest.raises(ValueError, match="shape"):
        process(1.0, 0.0)
