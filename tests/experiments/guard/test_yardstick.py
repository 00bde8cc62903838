"""The best configuration in hindsight, and random servers."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.experiments.guard.load import LOADS, Condition
from tuner.experiments.guard.server import default_is_best, held_out
from tuner.experiments.guard.windows import WindowsTask, end_of
from tuner.experiments.guard.yardstick import Yardstick


def test_the_default_is_best_where_it_should_be() -> None:
    """For every goal."""
    for number in range(3):
        case = default_is_best(np.random.default_rng(number), number)
        expected = Yardstick(case, 5.0).at(Condition(case.rate))
        default = case.space.encode(case.space.default)

        assert expected.cost[default] == pytest.approx(expected.least_cost, rel=0.02)
        assert expected.safe(default)


def test_a_slower_machine_costs_more() -> None:
    """Whatever the configuration; and some configuration keeps the SLO of a server that is drawn."""
    case = held_out(np.random.default_rng(3), 0)
    usual, slower = (Yardstick(case, 5.0).at(Condition(case.rate, slowdown=factor)) for factor in (1.0, 1.5))

    assert usual.achievable
    assert (slower.cost > usual.cost).all()


def test_configurations_under_which_requests_fail_are_never_best() -> None:
    """They do not keep the SLO."""
    case = held_out(np.random.default_rng(3), 0)
    best = int(Yardstick(case, 5.0).at(Condition(case.rate)).cost.argmin())

    without = Yardstick(case, 5.0, failing=[best]).at(Condition(case.rate))

    assert without.cost.argmin() != best
    assert not without.safe(best)


@pytest.mark.parametrize("name", LOADS)
def test_loads(name: str) -> None:
    """They last for all of a life, and are what the arrivals follow."""
    load = LOADS[name](100.0, 900.0)

    for time in (0.0, 100.0, 450.0, 5000.0):
        assert load.schedule.rate(time) == load.at(time).rate > 0


def test_short_windows() -> None:
    """The end is compared with the least of any configuration."""
    found = end_of(WindowsTask("latency", 100.0, 5.0), 1, 200.0)

    assert 0.9 < found.end < 2.0
    assert found.left >= 1.0
    assert found.kept > 50.0
    assert found.changes > 0
