"""The window after a change judges it: what is rolled back, to what, and what is waited for."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.builders import (
    SPACE,
    ScriptedAgent,
    changed,
    configuration,
    measurement,
    taken_back,
    turn,
)
from tests.control.decide.loop_bed import loop_with
from tuner.control import Apply, ControlLoop, Hold, Rollback
from tuner.control.decide.event import Failed, InForce, Ordered
from tuner.control.decide.orders import Orders
from tuner.knobs import Configuration
from tuner.measurement import UNANSWERED, Measurement
from tuner.objective import Objective, parse_slo


def test_a_change_that_breaks_the_slo_is_rolled_back_to_the_best_good_configuration() -> None:
    """After a change the next window is its probation."""
    loop, _ = loop_with(configuration(2), configuration(4))
    assert isinstance(turn(loop, 10.0, measurement(0.020)), Apply)
    changed(loop, configuration())

    decision = turn(loop, 20.0, measurement(0.045, running=configuration(2), end=20.0))

    assert isinstance(decision, Rollback)
    assert decision.configuration == configuration()
    assert "p95 45ms breaks 30ms" in decision.reason


def test_a_rollback_that_the_server_refuses_once_is_decided_again() -> None:
    """The window that broke the SLO has not let the change stay."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())

    decisions = []
    for end in (20.0, 30.0):
        decision = turn(loop, end, measurement(0.045, running=configuration(2), end=end))
        assert isinstance(decision, Rollback)
        decisions.append(decision)
        loop.observe(Failed(decision))

    assert [decision.rule for decision in decisions] == ["broken on probation"] * 2


def test_a_roll_back_to_what_ran_before_takes_it_as_it_was() -> None:
    """A server may run what the user's grids do not have; the nearest on them never ran."""
    running, wanted = configuration(128, 0.001, 8), configuration(16, 0.002, 2)
    loop, _ = loop_with(wanted)
    assert isinstance(turn(loop, 10.0, measurement(0.020, running=running)), Apply)
    changed(loop, running)

    decision = turn(loop, 20.0, measurement(0.045, running=wanted, end=20.0))

    assert isinstance(decision, Rollback)
    assert decision.configuration == running


GOOD, CHEAPER, BAD = configuration(), configuration(2), configuration(4)


def loop_rolled_back() -> ControlLoop:
    """An operator has rolled back what keeps the SLO at less cost, such as because it answers wrongly."""
    loop, _ = loop_with(CHEAPER)
    turn(loop, 10.0, measurement(0.020, running=GOOD))
    changed(loop, GOOD)
    turn(loop, 20.0, measurement(0.010, running=CHEAPER, end=20.0))
    assert loop.last_good == loop.incumbent() == CHEAPER
    loop.observe(Ordered(Orders(rollback=GOOD)))
    taken_back(loop, CHEAPER)
    loop.observe(Ordered(Orders()))
    return loop


def test_what_was_rolled_back_is_not_gone_back_to() -> None:
    """A change that breaks the SLO leads to the best of the others."""
    loop = loop_rolled_back()
    turn(loop, 30.0, measurement(0.020, running=GOOD, end=30.0))
    changed(loop, GOOD)

    decision = turn(loop, 40.0, measurement(0.045, running=BAD, end=40.0))

    assert isinstance(decision, Rollback)
    assert decision.configuration == GOOD


@pytest.mark.parametrize("windows", [0, 1])
def test_what_was_rolled_back_is_not_restored(windows: int) -> None:
    """The server restarts before or after the next window; nor is it left behind at the end."""
    loop = loop_rolled_back()
    for _ in range(windows):
        turn(loop, 30.0, measurement(0.020, running=GOOD, end=30.0))

    restore = loop.restoration(configuration(16))

    assert restore is not None
    assert restore.configuration == loop.incumbent() == GOOD


def test_where_only_what_was_rolled_back_keeps_the_slo_a_bad_change_ends_where_it_began() -> None:
    """What ran before broke the SLO now and then; the change surely does."""
    loop = loop_rolled_back()
    for end in (30.0, 40.0, 50.0):
        turn(loop, end, measurement(0.045, running=GOOD, end=end))
    changed(loop, GOOD)
    assert loop.memory.at(loop.level).good == [SPACE.encode(CHEAPER)]

    decision = turn(loop, 60.0, measurement(0.060, running=BAD, end=60.0))

    assert isinstance(decision, Rollback)
    assert decision.configuration == GOOD


def test_a_restart_gives_back_what_runs_where_only_what_was_rolled_back_keeps_the_slo_often() -> None:
    """What runs has kept it in the last window at least."""
    loop = loop_rolled_back()
    for end in (30.0, 40.0, 50.0):
        turn(loop, end, measurement(0.045, running=GOOD, end=end))
    turn(loop, 60.0, measurement(0.020, running=GOOD, end=60.0))
    assert loop.memory.at(loop.level).good == [SPACE.encode(CHEAPER)]

    assert loop.last_good == GOOD


@pytest.mark.parametrize(
    ("before", "after", "back"),
    [(0, 1, False), (0, 5, True), (20, 21, False), (20, 40, True), (1000, 1000, False), (1000, 1500, True)],
)
def test_rising_errors_roll_back_to_what_ran_before(before: int, after: int, back: bool) -> None:
    """More failures than chance explains undo a change even if no configuration is known to keep the SLO."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.090, failures=before))
    changed(loop, configuration())

    decision = turn(loop, 20.0, measurement(0.020, running=configuration(2), end=20.0, failures=after))

    assert isinstance(decision, Rollback) is back
    assert not back or decision.configuration == configuration()
    assert (f"{after} requests failed after the change" in decision.reason) is back


@pytest.mark.parametrize(
    ("came", "failures", "disturbed", "words"),
    [
        (1000, 1000, (UNANSWERED,), "1000 requests failed after the change"),
        (1000, 0, (UNANSWERED,), "none of 1000 requests was answered after the change"),
        (10_000, 10_000, (UNANSWERED,), "10000 requests failed after the change"),
        (0, 0, (UNANSWERED,), ""),
        (1000, 0, (UNANSWERED, "the server restarted"), ""),
    ],
)
def test_a_change_after_which_none_is_answered_is_rolled_back(
    came: int, failures: int, disturbed: tuple[str, ...], words: str
) -> None:
    """Nothing is learned from such a window; but where requests came, it speaks against the change."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    silent = measurement(math.nan, running=configuration(2), end=20.0, rate=came / 5, failures=failures)

    decision = turn(loop, 20.0, dataclasses.replace(silent, requests=0, disturbed=disturbed))

    assert isinstance(decision, Rollback if words else Hold)
    assert words in str(decision.reason)
    assert getattr(decision, "configuration", configuration()) == configuration()


@pytest.mark.parametrize(
    ("before", "cpu", "kind"), [(0, 1.0, Rollback), (0, -1.0, Hold), (1000, 1.0, Hold)], ids=str
)
def test_a_change_is_not_blamed_for_figures_that_cannot_be_true_nor_for_what_was_so_before(
    before: int, cpu: float, kind: type[Hold | Rollback]
) -> None:
    """All requests fail after it: by figures that nobody can believe, or as all did before it."""
    loop, _ = loop_with(configuration(2))
    first = measurement(0.020, failures=before)
    turn(loop, 10.0, dataclasses.replace(first, requests=1000 - before))
    changed(loop, configuration())
    silent = measurement(math.nan, running=configuration(2), end=20.0, failures=1000, cpu=cpu)

    decision = turn(loop, 20.0, dataclasses.replace(silent, requests=0, disturbed=(UNANSWERED,)))

    assert isinstance(decision, kind)


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("another", [True, False])
@pytest.mark.parametrize("retry_after", [20, 0])
def test_what_the_server_refuses_to_go_back_to_after_failures_gives_way(
    answered: bool, another: bool, retry_after: int
) -> None:
    """When the circuit breaker has closed again; where nothing else keeps the SLO, it is asked for again."""
    loop, _ = loop_with(GOOD, BAD, breaker=3, retry_after=retry_after)
    if another:
        turn(loop, 5.0, measurement(0.025, running=CHEAPER, end=5.0))
        changed(loop, CHEAPER)
    turn(loop, 10.0, measurement(0.020, running=GOOD))
    changed(loop, GOOD)
    bad = measurement(0.020, running=BAD, failures=1000)
    bad = bad if answered else dataclasses.replace(bad, requests=0, disturbed=(UNANSWERED,))

    asked = []
    for end in range(20, 120, 10):
        decision = turn(loop, end, dataclasses.replace(bad, start=end - 5.0, end=float(end)))
        if isinstance(decision, Rollback):
            asked.append(decision.configuration)
            loop.observe(Failed(decision))

    assert asked == [GOOD, GOOD, GOOD, CHEAPER if another else GOOD]


@pytest.mark.parametrize(("p95", "refused"), [(0.090, True), (0.020, False)])
def test_what_ran_before_is_asked_for_again_where_nothing_else_is_better(p95: float, refused: bool) -> None:
    """The server refuses it, but nothing keeps the SLO; or nobody saw how that ended."""
    loop, _ = loop_with(BAD, breaker=3)
    if not refused:
        turn(loop, 5.0, measurement(0.025, running=CHEAPER, end=5.0))
        changed(loop, CHEAPER)
    turn(loop, 10.0, measurement(p95, running=GOOD))
    changed(loop, GOOD)

    asked = []
    for end in range(20, 120, 10):
        decision = turn(loop, end, measurement(0.020, running=BAD, end=float(end), failures=1000))
        if isinstance(decision, Rollback):
            asked.append(decision.configuration)
            loop.observe(Failed(decision, refused=refused))

    assert asked == [GOOD] * 4


def test_a_change_is_not_rolled_back_to_itself() -> None:
    """It kept the SLO in earlier windows, at the least cost; now it surely breaks it."""
    loop, _ = loop_with()
    for end in range(10, 60, 10):
        turn(loop, end, measurement(0.005, running=CHEAPER, end=float(end)))
    turn(loop, 60.0, measurement(0.025, running=GOOD, end=60.0))
    changed(loop, GOOD)

    decision = turn(loop, 70.0, measurement(0.050, running=CHEAPER, end=70.0))

    assert loop.incumbent() == CHEAPER
    assert isinstance(decision, Rollback)
    assert decision.configuration == GOOD


def test_what_windows_have_judged_is_not_on_probation() -> None:
    """A restoration of what is known to be good is not taken back for one bad window."""
    loop, _ = loop_with()
    turn(loop, 10.0, measurement(0.020, running=GOOD))
    turn(loop, 20.0, measurement(0.020, running=CHEAPER, end=20.0))
    loop.observe(InForce(GOOD, judged=True))

    decision = turn(loop, 30.0, measurement(0.020, running=CHEAPER, failures=1000, end=30.0))

    assert not isinstance(decision, Rollback)


def test_requests_that_may_still_keep_a_long_slo_are_waited_for() -> None:
    """None of 2,000 was answered in five seconds, and each may take ten."""
    slow = Objective(slo=parse_slo("p95=10s"))
    loop = ControlLoop(SPACE, slow, ScriptedAgent(configuration(2)))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    silent = measurement(math.nan, running=configuration(2), end=20.0, rate=400.0, disturbed=(UNANSWERED,))

    assert isinstance(turn(loop, 20.0, dataclasses.replace(silent, requests=0)), Hold)


def test_a_change_is_kept_while_nothing_keeps_the_slo() -> None:
    """Under overload there is nothing good to return to: the search goes on."""
    loop, _ = loop_with(configuration(2), configuration(4))
    turn(loop, 10.0, measurement(0.900))
    changed(loop, configuration())

    decision = turn(loop, 20.0, measurement(0.400, running=configuration(2), end=20.0))

    assert isinstance(decision, Apply)
    assert decision.configuration == configuration(4)
    assert loop.memory.probation is None, "it is judged"


def mixed(mean: float, running: Configuration, end: float) -> Measurement:
    """A window whose server-side quantiles still look back."""
    m = measurement(mean * 2, running=running, end=end)
    return dataclasses.replace(m, quantiles_from="server", quantiles_mixed=True)


def test_mixed_quantiles_are_not_learned_from() -> None:
    """For a minute after a change the server's quantiles say nothing about the new configuration."""
    loop, agent = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())

    decision = turn(loop, 20.0, mixed(0.010, configuration(2), 20.0))

    assert isinstance(decision, Hold)
    assert "look back" in decision.reason
    assert len(agent.updates) == 1


def test_a_mean_above_the_slo_rolls_back_without_waiting_for_quantiles() -> None:
    """If even the mean breaks the bound on p95, there is nothing to wait for."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())

    decision = turn(loop, 20.0, mixed(0.200, configuration(2), 20.0))

    assert isinstance(decision, Rollback)
    assert decision.configuration == configuration()


def test_a_mean_above_the_slo_is_no_reason_to_leave_what_was_gone_back_to() -> None:
    """It is not on probation: the requests that the change left behind are still being answered."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 5.0, measurement(0.025, running=configuration(8), end=5.0))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    turn(loop, 20.0, mixed(0.200, configuration(2), 20.0))
    taken_back(loop, configuration(2))

    assert isinstance(turn(loop, 30.0, mixed(0.200, configuration(), 30.0)), Hold)


def test_what_a_mean_rolls_back_is_banned_under_the_load_that_showed_it() -> None:
    """It may be the best under the load of before."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 5.0, measurement(0.025, rate=900.0, end=5.0))
    high = loop.level
    turn(loop, 10.0, measurement(0.020, rate=200.0))
    low = loop.level
    changed(loop, configuration())
    window = mixed(0.200, configuration(2), 20.0)

    decision = turn(loop, 20.0, dataclasses.replace(window, requests=4500, arrival_rate=900.0))
    taken_back(loop, configuration(2))

    assert isinstance(decision, Rollback)
    assert loop.memory.banned(high) == [SPACE.encode(configuration(2))]
    assert loop.memory.banned(low) == []


@pytest.mark.parametrize(
    ("p95", "requests", "kind"), [(0.033, 60, Apply), (0.033, 60000, Rollback), (0.060, 6000, Rollback)]
)
def test_a_change_is_judged_by_enough_requests(
    p95: float, requests: int, kind: type[Apply | Rollback]
) -> None:
    """A tenth above the SLO is nothing sure after few requests: the agent may leave, nothing is banned."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())

    window = measurement(p95, running=configuration(2), end=20.0, rate=requests / 5)
    decision = turn(loop, 20.0, dataclasses.replace(window, arrival_rate=200.0))

    assert isinstance(decision, kind)
    assert decision.configuration == configuration()


@pytest.mark.parametrize(("timed", "kind"), [(math.inf, Rollback), (50.0, Apply)])
def test_a_change_is_judged_by_the_requests_that_were_timed(
    timed: float, kind: type[Apply | Rollback]
) -> None:
    """Our own fifty among thousands of others prove as little as fifty alone."""
    loop, _ = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())

    window = measurement(0.033, running=configuration(2), end=20.0, rate=12000.0)
    decision = turn(loop, 20.0, dataclasses.replace(window, arrival_rate=200.0, timed=timed))

    assert isinstance(decision, kind)
