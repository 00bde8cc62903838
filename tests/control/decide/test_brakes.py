"""The brakes: what stops changes whatever the agent would like."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, changed, configuration, measurement, taken_back
from tuner.control import Apply, ControlLoop, Guard, GuardLimits, Hold, Rollback
from tuner.control.decide.brakes import HOUR, Breaker, ChangeCount, Freeze
from tuner.control.decide.plausible import implausible
from tuner.knobs import ApplyCost


def loop_with(*proposals, **limits):
    agent = ScriptedAgent(*proposals)
    return ControlLoop(SPACE, OBJECTIVE, agent, limits=GuardLimits(rollback_cooldown=0, **limits)), agent


def test_changes_are_counted_for_an_hour_by_what_they_cost():
    """Each kind for itself; what is free is not counted."""
    count = ChangeCount(GuardLimits(reloads_per_hour=2, restarts_per_hour=0))
    for now in (0.0, 10.0):
        count.record(now, ApplyCost.RELOAD)
        count.record(now, ApplyCost.FREE)

    assert set(count.spent(10.0)) == {ApplyCost.RELOAD, ApplyCost.RESTART}
    assert count.spent(10.0)[ApplyCost.RELOAD] == "the 2 reloads of this hour are used up"
    assert set(count.spent(HOUR)) == {ApplyCost.RESTART}


def test_no_more_reloads_than_an_hour_has():
    """Then the server is left alone until the first of them is an hour old."""
    loop, _ = loop_with(configuration(2), configuration(4), configuration(4), reloads_per_hour=1)
    assert isinstance(loop.decide(10.0, measurement(0.020)), Apply)
    changed(loop, configuration(), now=10.0)

    held = loop.decide(20.0, measurement(0.020, running=configuration(2), end=20.0))
    later = loop.decide(10.0 + HOUR, measurement(0.020, running=configuration(2), end=10.0 + HOUR))

    assert isinstance(held, Hold)
    assert "the 1 reloads of this hour are used up" in held.reason
    assert isinstance(later, Apply)


def test_cheaper_changes_are_still_allowed():
    """An instance more is a change in place here: the reloads that are used up do not count."""
    more = configuration(2, instances=2)
    loop, _ = loop_with(configuration(2), more, reloads_per_hour=1)
    loop.decide(10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)

    decision = loop.decide(20.0, measurement(0.020, running=configuration(2), end=20.0))

    assert isinstance(decision, Apply)
    assert decision.configuration == more


def test_a_rollback_is_never_kept_back():
    """However many reloads there were."""
    loop, _ = loop_with(configuration(2), reloads_per_hour=1)
    loop.decide(10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)

    assert isinstance(loop.decide(20.0, measurement(0.050, running=configuration(2), end=20.0)), Rollback)


def test_the_breaker_opens_after_failures_in_a_row_and_tries_less_and_less_often():
    """One try at a time; a success closes it."""
    breaker = Breaker(GuardLimits(breaker=2, breaker_pause=2, breaker_longest=5))
    breaker.failed()
    assert not breaker.window()

    pauses = []
    for _ in range(3):
        breaker.failed()
        pauses.append(sum(iter(breaker.window, False)))
    assert pauses == [2, 4, 5]

    breaker.succeeded()
    assert not breaker.window()


def test_nothing_is_tried_while_changes_fail():
    """Refused twice: the agent's third idea has to wait."""
    loop, _ = loop_with(*[configuration(b) for b in (2, 4, 2, 4, 2, 4)], breaker=2, breaker_pause=2, step=9)
    decisions = []
    for now in (10.0, 20.0, 30.0, 40.0, 50.0):
        decisions.append(loop.decide(now, measurement(0.020, end=now)))
        if isinstance(decisions[-1], Apply):
            loop.failed(decisions[-1], refused=False)

    assert [type(d) for d in decisions] == [Apply, Apply, Hold, Hold, Apply]
    assert decisions[2].reason == "2 changes in a row failed; the next try is 2 windows away"


def test_metrics_that_fail_freeze_everything_until_they_are_good_again():
    """Three bad windows; then two good ones are waited for."""
    freeze = Freeze(GuardLimits(blind=3, thaw=2))
    assert [freeze.unusable() for _ in range(4)] == [False, False, True, True]
    assert [freeze.usable() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ({"latency_p95": math.nan, "latency_p99": math.nan, "latency_mean": math.nan}, "was not measured"),
        ({"start": -105.0, "end": -100.0}, "old"),
        ({"latency_p95": 0.001}, "out of order"),
    ],
)
def test_a_change_that_cannot_be_judged_is_undone(kind, word):
    """Missing, stale or implausible metrics on probation: back to what ran before, and frozen."""
    loop, agent = loop_with(configuration(2), configuration(4), blind=2)
    loop.decide(10.0, measurement(0.020))
    changed(loop, configuration(), now=10.0)

    bad = [dataclasses.replace(measurement(running=configuration(2), end=20.0), **kind) for _ in range(4)]
    first, second, again = (loop.decide(20.0, m) for m in bad[:3])
    taken_back(loop, configuration(2), now=20.0)
    last = loop.decide(20.0, bad[3])
    thawing = loop.decide(30.0, measurement(0.020, end=30.0))

    assert isinstance(first, Hold)
    assert word in first.reason
    assert isinstance(second, Rollback)
    assert second.configuration == configuration()
    assert "2 windows without usable metrics" in second.reason
    assert isinstance(again, Rollback), "it did not come about"
    assert isinstance(last, Hold)
    assert "frozen" in thawing.reason
    assert len(agent.updates) == 2


def test_noise_and_idleness_do_not_freeze():
    """A machine that others use, and an hour without requests, are no fault of the metrics."""
    loop, _ = loop_with(configuration(2), blind=1)
    idle = dataclasses.replace(measurement(math.nan), requests=0, arrival_rate=0.0)

    assert loop.decide(10.0, idle).reason == "window not used: no request came"
    assert "noise" in loop.decide(10.0, measurement(disturbed=("noise",))).reason
    assert isinstance(loop.decide(10.0, measurement()), Apply)


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": -1},
        {"failures": -1},
        {"arrival_rate": -2.0},
        {"arrival_rate": math.inf},
        {"latency_mean": -0.1},
        {"latency_p95": 0.0},
        {"latency_p99": 1e9},
        {"latency_p99": math.inf},
        {"latency_p50": 0.5},
        {"cpu": -1.0},
        {"cpu": math.inf},
        {"gpu": 1.5},
        {"end": 1.0, "start": 2.0},
    ],
)
def test_figures_that_cannot_be_true_are_told(wrong):
    """Each in words; true ones, and those that nobody measured, pass."""
    true = measurement()
    assert implausible(true) is None
    assert implausible(dataclasses.replace(true, gpu=math.nan, latency_p50=math.nan)) is None

    assert implausible(dataclasses.replace(true, **wrong))


@pytest.mark.parametrize(
    "limits", [{"reloads_per_hour": -1}, {"breaker": 0}, {"blind": 0}, {"thaw": -1}, {"breaker_pause": 0}]
)
def test_impossible_limits_are_refused(limits):
    """As those of the guard are."""
    with pytest.raises(ValueError, match="guard"):
        Guard(GuardLimits(**limits))
