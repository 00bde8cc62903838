"""The stage of a life: what the driver is shown, and what really happened."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.envs.simulator.server import ServerModel
from tuner.errors import Refused, TimedOut, Unreachable
from tuner.experiments.guard.load import Condition, MovingLoad
from tuner.experiments.guard.server import HeldOut
from tuner.experiments.guard.stage import DISTURBED, UNSEEN, Stage
from tuner.experiments.guard.trouble import ABSENCE, Troubles, troubles
from tuner.knobs import Configuration
from tuner.objective import Objective, Slo

CASE = HeldOut(
    server=ServerModel(),
    objective=Objective(slo=Slo(statistic="p95", latency=0.030), cores=2.0),
    rate=100.0,
)
OTHER = Configuration(max_batch_size=8.0, max_queue_delay=0.0, instances=2.0)


def stage(trusted: str = "", **wrong: object) -> Stage:
    """A stage with some troubles."""
    load = MovingLoad(((0.0, Condition(100.0)),))
    return Stage(CASE, load, Troubles(**wrong), seed=1, trusted=(trusted,))  # type: ignore[arg-type]


def test_without_troubles_the_driver_sees_what_happened() -> None:
    """The record holds the same figures."""
    server = stage()

    shown = server.measure(5.0)

    (happened,) = server.happened
    assert happened is not None
    assert (happened.latency, happened.cpu) == (shown.latency_p95, shown.cpu)
    assert happened.kept
    assert not happened.tried


@pytest.mark.parametrize("fate", ["missing", "false"])
def test_wrong_metrics_hide_what_happened(fate: str) -> None:
    """What is shown is missing or impossible; the record is not."""
    server = stage(metrics={0: fate})

    shown = server.measure(5.0)

    assert math.isnan(shown.latency_p95) or shown.latency_p95 < 0
    assert server.happened[0] is not None
    assert 0 < server.happened[0].latency < 1
    assert server.unsound == {UNSEEN}


def test_a_rule_left_out_takes_its_windows_as_sound() -> None:
    """Foreign processes come, but nobody says so."""
    honest, trusting = stage(neighbours=frozenset({4})), stage(DISTURBED, neighbours=frozenset({4}))
    for server in (honest, trusting):
        server.apply(OTHER)
        for _ in range(4):
            assert not server.measure(5.0).disturbed

    assert honest.measure(5.0).disturbed
    assert not trusting.measure(5.0).disturbed
    assert trusting.happened[4] is not None
    assert trusting.happened[4].disturbed


def test_quantiles_look_back_after_a_change() -> None:
    """They are those of the windows within the server's memory, and marked as mixed."""
    server = stage(memory=20.0)
    server.measure(5.0)
    server.apply(OTHER)

    shown = server.measure(5.0)

    assert shown.quantiles_mixed
    assert shown.latency_p95 != server.happened[1].latency


def test_changes_are_refused_or_lost() -> None:
    """The server runs what it ran, and both count as tried."""
    server = stage(changes={0: "refused", 1: "lost", 2: "late"})
    for error in (Refused, TimedOut):
        server.measure(5.0)
        with pytest.raises(error):
            server.apply(OTHER)
        assert server.current() == CASE.space.default
    server.measure(5.0)
    with pytest.raises(TimedOut):
        server.apply(OTHER)

    assert server.current() == OTHER
    assert server.changes == 3


def test_some_configurations_are_slow_or_blind() -> None:
    """Executions take six times as long; after a change that blinds, metrics are missing for four windows."""
    slow = stage(slow=frozenset({CASE.space.encode(OTHER)}), changes={0: "blinding"})
    usual = slow.measure(5.0)
    slow.apply(OTHER)

    shown = [slow.measure(5.0) for _ in range(5)]

    assert [math.isnan(one.latency_p95) for one in shown] == [True] * 4 + [False]
    assert slow.happened[1].latency > 2 * usual.latency_p95
    assert slow.happened[1].tried
    assert not slow.happened[2].tried


def test_a_server_that_was_away_comes_back_with_its_default() -> None:
    """Nothing answers meanwhile."""
    server = stage(absences=frozenset({0}))
    server.apply(OTHER)
    with pytest.raises(Unreachable):
        server.measure(5.0)
    with pytest.raises(Unreachable):
        server.current()

    server.clock.sleep(ABSENCE)

    assert server.current() == CASE.space.default
    assert server.happened == [None]


def test_orders_that_are_not_obeyed_are_counted() -> None:
    """Of a change while paused, and of another configuration than the one pinned."""
    orders = troubles(np.random.default_rng(1), CASE.space, 60, 0).orders
    paused = next(window for window, one in orders.items() if one.paused)
    server = stage(orders={0: orders[paused]})
    server.measure(5.0)
    assert server.read().paused
    server.apply(OTHER)

    server.measure(5.0)

    assert server.disobeyed == 1


def test_the_same_seed_has_the_same_troubles() -> None:
    """Every variant meets them in the same windows."""
    one, same = (troubles(np.random.default_rng(7), CASE.space, 90, 1) for _ in range(2))

    assert one == same
    assert min(one.metrics) >= 8
    assert one.memory > 0
