"""What is said of many servers, beside what was asked for."""

from __future__ import annotations

import math

import pytest

from tests.experiments.quick import quick
from tuner.experiments.frame.result import Row
from tuner.experiments.neural.asked import ManyServers
from tuner.experiments.neural.held_out import HeldOutTask
from tuner.experiments.neural.servers import Learning

TASK = HeldOutTask("triton", "like the training")
MEDIAN, WORST, WINDOWS, NEVER, BROKEN = range(5)


def rows_of(learnings: list[Learning]) -> list[Row]:
    return list(quick(ManyServers).rows({TASK: learnings}))


def learning(above: float, settled: float = 1.0) -> Learning:
    return Learning(above=above, settled=settled, broken=0.02, first=0.0, ending=0.0)


def test_the_median_has_an_interval_by_order_statistics() -> None:
    """Of twenty servers it reaches from the sixth to the fifteenth: 90 % binomial probability and more."""
    rows = rows_of([learning(number / 100) for number in range(1, 21)])

    assert (rows[MEDIAN].measured, rows[MEDIAN].low, rows[MEDIAN].high) == pytest.approx((10.5, 6, 15))
    assert rows[WORST].measured == pytest.approx(18.1)
    assert rows[BROKEN].measured == pytest.approx(2)


def test_its_chance_is_that_of_a_sign_test() -> None:
    """One of twenty within what was asked for, 1 %: twice the binomial probability of one at most."""
    rows = rows_of([learning(0.005), *[learning(0.05)] * 19])

    assert rows[MEDIAN].note == f"asked for: at most 1; p {2 * 21 / 2**20:.2g} if the median were that"


def test_a_server_that_never_settles_counts_as_the_slowest() -> None:
    """A median that is never reached is none, and so is the end of an interval."""
    half = rows_of([learning(0.0, 3.0)] * 10 + [learning(0.0, math.inf)] * 9)
    most = rows_of([learning(0.0, 3.0)] * 9 + [learning(0.0, math.inf)] * 10)

    assert (half[WINDOWS].measured, half[WINDOWS].low, half[WINDOWS].high) == (3.0, 3.0, None)
    assert most[WINDOWS].measured is None
    assert half[NEVER].measured == pytest.approx(100 * 9 / 19)
