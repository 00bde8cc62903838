"""The limits: what stops changes whatever the agent would like."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from tests.builders import (
    OBJECTIVE,
    changed,
    configuration,
    measurement,
    turn,
)
from tests.control.decide.loop_bed import loop_with
from tuner.control import Apply, Hold, Rollback
from tuner.control.decide.event import Failed, Unseen
from tuner.control.decide.memory import HOUR
from tuner.control.decide.validation import LOOKS_BACK, implausible, unusable
from tuner.objective import Slo


def test_no_more_reloads_than_an_hour_has() -> None:
    """Then the server is left alone until the first of them is an hour old."""
    loop, _ = loop_with(configuration(2), configuration(4), configuration(4), reloads_per_hour=1)
    assert isinstance(turn(loop, 10.0, measurement(0.020)), Apply)
    changed(loop, configuration(), now=10.0)

    held = turn(loop, 20.0, measurement(0.020, running=configuration(2), end=20.0))
    later = turn(loop, 10.0 + HOUR, measurement(0.020, running=configuration(2), end=10.0 + HOUR))

    assert isinstance(held, Hold)
    assert "the 1 reloads of this hour are used up" in held.reason
    assert isinstance(later, Apply)


def test_cheaper_changes_are_still_allowed() -> None:
    """An instance more is a change in place here: the reloads that are used up do not count."""
    more = configuration(2, instances=2)
    loop, _ = loop_with(configuration(2), more, reloads_per_hour=1)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)

    decision = turn(loop, 20.0, measurement(0.020, running=configuration(2), end=20.0))

    assert isinstance(decision, Apply)
    assert decision.configuration == more


def test_what_runs_beside_the_grids_is_not_changed_in_place() -> None:
    """Its batch would become one of the grid: with an instance more that is a reload all the same."""
    loop, _ = loop_with(configuration(2, instances=2), reloads_per_hour=0)

    decision = turn(loop, 10.0, measurement(0.020, running=configuration(3)))

    assert isinstance(decision, Hold)
    assert "the 0 reloads of this hour are used up" in decision.reason


def test_a_rollback_is_never_kept_back() -> None:
    """However many reloads there were."""
    loop, _ = loop_with(configuration(2), reloads_per_hour=1)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)

    assert isinstance(turn(loop, 20.0, measurement(0.050, running=configuration(2), end=20.0)), Rollback)


def test_what_is_known_to_keep_the_slo_is_gone_back_to_however_many_reloads_there_were() -> None:
    """Also long after the change: the load may have risen since."""
    loop, _ = loop_with(configuration(2), reloads_per_hour=1)
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)
    decisions = [
        turn(loop, end, measurement(p95, running=configuration(2), end=end))
        for end, p95 in ((20.0, 0.020), (30.0, 0.050), (40.0, 0.050))
    ]

    assert isinstance(decisions[0], Hold)
    assert isinstance(decisions[-1], Apply)
    assert decisions[-1].configuration == configuration()


def test_a_quarter_of_the_reloads_is_left_for_a_broken_slo() -> None:
    """A search while all is well does not use up what is needed to find a way out of an overload."""
    loop, _ = loop_with(configuration(2), configuration(2), reloads_per_hour=4)
    for now in (1.0, 2.0, 3.0):
        changed(loop, configuration(), now=now)

    held = turn(loop, 10.0, measurement(0.020))
    tried = turn(loop, 20.0, measurement(0.900, rate=900.0, end=20.0))

    assert isinstance(held, Hold)
    assert "the 4 reloads of this hour are used up but for 1 that are kept for a broken SLO" in held.reason
    assert isinstance(tried, Apply)


def test_a_broken_slo_uses_up_no_more_reloads_than_an_hour_has() -> None:
    """While nothing is known to keep it, whatever is tried is a try."""
    loop, _ = loop_with(configuration(2), configuration(2), reloads_per_hour=4)
    for now in (1.0, 2.0, 3.0, 4.0):
        changed(loop, configuration(), now=now)

    held = turn(loop, 10.0, measurement(0.900))

    assert isinstance(held, Hold)
    assert "the 4 reloads of this hour are used up" in held.reason


def test_nothing_is_tried_while_changes_fail() -> None:
    """Not answered twice: the agent's third idea has to wait."""
    loop, _ = loop_with(*[configuration(b) for b in (2, 4, 8, 16) * 3], breaker=2, step=9)
    decisions = []
    for now in range(10, 90, 10):
        decisions.append(turn(loop, now, measurement(0.020, end=float(now))))
        if isinstance(decisions[-1], Apply):
            loop.observe(Failed(decisions[-1], refused=False))

    assert [type(d) for d in decisions] == [Apply, Apply, *[Hold] * 5, Apply]
    assert decisions[2].reason == "2 changes in a row failed; the next try is 5 windows away"


def test_turns_without_a_window_bring_the_next_try_nearer() -> None:
    """Otherwise a server whose metrics are away would be held for ever."""
    loop, _ = loop_with(configuration(2), configuration(4), breaker=1)
    first = turn(loop, 10.0, measurement(0.020))
    assert isinstance(first, Apply)
    loop.observe(Failed(first))

    for _ in range(5):
        loop.observe(Unseen(configuration(), "no answer"))

    assert isinstance(turn(loop, 80.0, measurement(0.020, end=80.0)), Apply)


def test_a_trial_on_one_replica_that_speaks_against_a_change_is_no_failure_of_the_server() -> None:
    """Changes go on; but that one is not tried again at once."""
    loop, _ = loop_with(configuration(2), configuration(2), configuration(4), breaker=1)
    first = turn(loop, 10.0, measurement(0.020))
    assert isinstance(first, Apply)
    loop.observe(Failed(first, tried=True))

    again, other = (turn(loop, end, measurement(0.020, end=end)) for end in (20.0, 30.0))

    assert isinstance(again, Hold)
    assert isinstance(other, Apply)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ({"latency_p95": math.nan, "latency_p99": math.nan, "latency_mean": math.nan}, "was not measured"),
        ({"latency_p95": 0.001}, "out of order"),
    ],
)
def test_a_change_that_cannot_be_judged_waits(kind: dict[str, Any], word: str) -> None:
    """Missing or implausible metrics on probation: nothing is done until a window shows something."""
    loop, agent = loop_with(configuration(2), configuration(4))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)

    bad = [dataclasses.replace(measurement(running=configuration(2), end=20.0), **kind) for _ in range(4)]
    held = [turn(loop, 20.0, m) for m in bad]
    waited = loop.memory.probation is not None
    sound = turn(loop, 30.0, measurement(0.020, running=configuration(2), end=30.0))

    assert {type(decision) for decision in held} == {Hold}
    assert word in held[0].reason
    assert waited
    assert isinstance(sound, Apply)
    assert len(agent.updates) == 2


def test_noise_and_idleness_are_no_fault_of_the_metrics() -> None:
    """A machine that others use, and an hour without requests, are no fault of the metrics."""
    loop, _ = loop_with(configuration(2))
    idle = dataclasses.replace(measurement(math.nan), requests=0, arrival_rate=0.0)

    assert turn(loop, 10.0, idle).reason == "window not used: no request came"
    assert "noise" in turn(loop, 10.0, measurement(disturbed=("noise",))).reason
    assert isinstance(turn(loop, 10.0, measurement()), Apply)


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": -1},
        {"failures": -1},
        {"arrival_rate": -2.0},
        {"arrival_rate": math.inf},
        {"latency_mean": -0.1},
        {"latency_p95": 0.0},
        {"latency_p99": 3601.0},
        {"latency_p95": 0.0189, "latency_p50": 0.02},
        {"latency_p99": math.inf},
        {"latency_p50": 0.5},
        {"cpu": -1.0},
        {"cpu": math.inf},
        {"gpu": 1.5},
        {"end": 1.0, "start": 2.0},
    ],
)
def test_figures_that_cannot_be_true_are_told(wrong: dict[str, Any]) -> None:
    """Each in words; true ones, and those that nobody measured, pass."""
    true = measurement()
    assert implausible(true) is None
    assert implausible(dataclasses.replace(true, gpu=math.nan, latency_p50=math.nan)) is None

    assert implausible(dataclasses.replace(true, **wrong))


@pytest.mark.parametrize(
    "odd",
    [
        {"latency_p95": 0.0191, "latency_p50": 0.02},
        {"gpu": 1.04},
        {"latency_p95": 3599.0, "latency_p99": 3599.0},
        {"requests": 0} | {f"latency_{name}": 0.0 for name in ("mean", "p50", "p95", "p99")},
    ],
)
def test_figures_that_servers_round_are_believed(odd: dict[str, Any]) -> None:
    """Each quantile is an estimate of its own; a server without requests may say that they took 0 s."""
    assert implausible(dataclasses.replace(measurement(), **odd)) is None


def test_a_mean_does_not_look_back() -> None:
    """Quantiles that still do are no reason to wait where the SLO bounds the mean."""
    mixed = dataclasses.replace(measurement(), quantiles_mixed=True)
    on_the_mean = dataclasses.replace(OBJECTIVE, slo=Slo(statistic="mean", latency=0.030))

    assert unusable(mixed, OBJECTIVE) == LOOKS_BACK
    assert unusable(mixed, on_the_mean) == ""
