"""Tests of rate schedules and random arrivals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.workload.schedule import ArrivalStream, RateSchedule, parse_schedule


def test_steps() -> None:
    """The rate changes where the schedule says, and the last step lasts."""
    schedule = parse_schedule("0:150,60:300")

    assert [schedule.rate(time) for time in (0.0, 59.9, 60.0, 1e6)] == [150.0, 150.0, 300.0, 300.0]
    assert [schedule.next_change(time) for time in (0.0, 60.0)] == [60.0, math.inf]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "-5",
        "0",
        "nan",
        "10:100",
        "0:100,0:200",
        "0:100:3",
        "0:inf",
        "0:1,9:0",
        "1e9",
        "0:9,5:1e6",
    ],
)
def test_bad_rate(text: str) -> None:
    """A rate that makes no sense is refused with a fix."""
    with pytest.raises(InvalidInput, match="rate"):
        parse_schedule(text)


def test_poisson_follows_steps() -> None:
    """Arrivals come at the scheduled rate, and none while it is 0."""
    stream = ArrivalStream(parse_schedule("0:200,50:0,60:400"), np.random.default_rng(1))

    times = stream.take(100.0)
    counts = [int(((times >= a) & (times < b)).sum()) for a, b in ((0, 50), (50, 60), (60, 100))]
    assert counts[0] == pytest.approx(10_000, rel=0.05)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(16_000, rel=0.05)


def test_a_step_that_is_as_good_as_never() -> None:
    """More requests are expected before it than a number can say; those before it come as ever."""
    stream = ArrivalStream(RateSchedule(steps=((0.0, 100.0), (1e308, 200.0))), np.random.default_rng(3))

    assert stream.take(10.0).size == pytest.approx(1_000, rel=0.1)


def test_same_sequence_however_cut() -> None:
    """The same seed gives the same arrivals whatever the windows."""
    whole = ArrivalStream(RateSchedule.constant(300.0), np.random.default_rng(2)).take(20.0)
    stream = ArrivalStream(RateSchedule.constant(300.0), np.random.default_rng(2))

    parts = np.concatenate([stream.take(end) for end in (0.001, 3.0, 3.5, 20.0)])

    assert np.array_equal(whole, parts)


@pytest.mark.parametrize(("shape", "dispersion"), [(math.inf, 0.0), (1.0, 1.0), (0.25, 4.0)])
def test_shape(shape: float, dispersion: float) -> None:
    """The index of dispersion of counts is one over the shape of the gaps."""
    stream = ArrivalStream(RateSchedule.constant(100.0), np.random.default_rng(3), shape)

    counts = np.histogram(stream.take(2000.0), bins=1000, range=(0, 2000))[0]

    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.15, abs=0.01)
