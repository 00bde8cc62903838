"""The control loop: every decision is a function of what it saw, and has a reason."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.builders import (
    OBJECTIVE,
    SPACE,
    ScriptedAgent,
    changed,
    configuration,
    measurement,
    turn,
)
from tests.control.decide.loop_bed import loop_with
from tuner.agents.agent import State
from tuner.control import Apply, ControlLoop, Hold
from tuner.control.decide.event import Banned, Remembered
from tuner.objective import Slo


def test_applies_what_the_agent_chooses_with_a_reason() -> None:
    """A quiet window leads to the agent's proposal, and the reason compares the latency with the SLO."""
    loop, agent = loop_with(configuration(2))

    decision = turn(loop, 10.0, measurement(0.020))

    assert isinstance(decision, Apply)
    assert decision.configuration == configuration(2)
    assert "p95 20ms within 30ms" in decision.reason
    assert [(c, round(cost, 3)) for _, c, cost in agent.updates] == [(SPACE.encode(configuration()), 0.667)]


def test_a_reason_says_what_the_expected_cost_rests_on() -> None:
    """If the agent can say; in changes and where it would stay."""

    class Knowing(ScriptedAgent):
        def basis(self, state: State, configuration: int) -> str:
            return f"pre-trained, {configuration - state.configuration} away"

    agent = Knowing(configuration(2))
    agent.learned = {SPACE.encode(configuration(2)): 0.5}
    loop = ControlLoop(SPACE, OBJECTIVE, agent)

    there, here = turn(loop, 10.0, measurement(0.020)), turn(loop, 20.0, measurement(0.020, end=20.0))

    assert "(expected cost 0.50, untried; pre-trained, 6 away)" in there.reason
    assert here.reason.endswith("nothing better is expected (pre-trained, 0 away)")


def test_holds_and_learns_nothing_from_a_disturbed_window() -> None:
    """Foreign load says nothing about the configuration."""
    loop, agent = loop_with(configuration(2))

    decision = turn(loop, 10.0, measurement(0.5, disturbed=("foreign CPU 0.9 cores",)))

    assert isinstance(decision, Hold)
    assert "foreign CPU" in decision.reason
    assert agent.updates == []


def test_holds_when_the_statistic_was_not_measured() -> None:
    """Without quantiles a p95 SLO cannot be judged: hold and say so."""
    loop, agent = loop_with(configuration(2))

    decision = turn(loop, 10.0, measurement(math.nan))

    assert isinstance(decision, Hold)
    assert "p95" in decision.reason
    assert agent.updates == []


def test_never_explores_while_the_error_budget_is_spent() -> None:
    """With the budget spent the agent is not asked to explore, only for its best known choice."""
    loop, agent = loop_with(*[configuration(2)] * 40, patience=100)
    for end, p95 in enumerate(2 * [*[0.020] * 9, 0.045]):
        turn(loop, 10.0 * end, measurement(p95, end=10.0 * end))
    assert loop.memory.budget_spent
    agent.selects = 0

    decision = turn(loop, 200.0, measurement(0.020, end=200.0))

    assert isinstance(decision, Hold)
    assert "error budget" in decision.reason
    assert agent.selects == 0


def test_requests_that_a_change_delayed_are_charged_to_the_error_budget() -> None:
    """A thousand requests came per window, and those of two waited for the change as long as the SLO."""
    loop, agent = loop_with(configuration(2), configuration(4))
    turn(loop, 10.0, measurement(0.020))
    changed(loop, configuration())
    agent.selects = 0

    after = measurement(0.020, running=configuration(2), end=25.0, waiting=2000 * 0.030)
    decision = turn(loop, 25.0, after)

    assert isinstance(decision, Hold)
    assert agent.selects == 0
    assert loop.memory.budget_text() == "2 of 2 windows of the SLO error budget used"


def test_a_request_that_a_change_delayed_is_charged_once() -> None:
    """Five hundred requests waited for two seconds: half a window's, however many times the SLO that is."""
    loop, _ = loop_with()
    turn(loop, 10.0, measurement(0.020))

    turn(loop, 25.0, measurement(0.020, end=25.0, waiting=500 * 2.0, waited=500.0))

    assert loop.memory.budget_text() == "0.5 of 2 windows of the SLO error budget used"


def test_windows_of_an_earlier_life_are_charged_to_the_error_budget() -> None:
    """Otherwise a daemon that is restarted again and again would have a fresh budget each time."""
    loop, _ = loop_with()
    level = loop.levels.level(100.0, None)

    for kept in (*[True] * 9, False, False):
        loop.observe(Remembered(level, configuration(), 0.5 if kept else 1.5, kept))

    assert loop.memory.budget_spent


def test_windows_under_another_objective_are_not_charged_to_the_error_budget() -> None:
    """It was not theirs to keep this SLO."""
    loop, _ = loop_with()

    for kept in (*[True] * 9, False, False, False):
        loop.observe(Remembered(24, configuration(), 0.5 if kept else 1.5, kept, counts=False))

    assert not loop.memory.budget_spent


def test_a_ban_of_an_earlier_life_stands_only_where_the_knobs_have_its_values() -> None:
    """The nearest that they have now was not rolled back."""
    loop, _ = loop_with()

    for batch in (3, 4):
        loop.observe(Banned(24, configuration(batch), windows=5, times=1))

    assert loop.bans() == [Banned(24, configuration(4), windows=5, times=1)]


def test_a_window_that_lets_a_configuration_stay_ends_the_row_of_its_bans() -> None:
    """The next ban is as long as the first."""
    loop, _ = loop_with()
    level = loop.levels.level(200.0)
    loop.observe(Banned(level, configuration(), windows=0, times=3))

    turn(loop, 10.0, measurement(0.020))

    assert loop.bans() == []


def test_a_broken_slo_is_repaired_with_a_known_configuration_at_once() -> None:
    """A good configuration may be reached at any distance; nothing is explored before the SLO holds again."""
    good = configuration(16, 0.01, 2)
    loop, agent = loop_with(configuration(2))
    turn(loop, 10.0, measurement(0.015, running=good))
    agent.selects = 0

    decision = turn(loop, 20.0, measurement(0.080, running=configuration(), end=20.0))

    assert isinstance(decision, Apply)
    assert decision.configuration == good
    assert agent.selects == 0


def test_the_incumbent_is_the_best_that_kept_the_slo() -> None:
    """What a run would leave behind: good before cheap, and nothing untried."""
    loop, _ = loop_with()
    assert loop.incumbent() is None
    turn(loop, 10.0, measurement(0.050, running=configuration(1)))
    assert loop.incumbent() == configuration(1)
    turn(loop, 20.0, measurement(0.025, running=configuration(4), end=20.0))
    turn(loop, 30.0, measurement(0.015, running=configuration(8), end=30.0))

    assert loop.incumbent() == configuration(8)


def test_a_window_is_longer_where_few_requests_are_timed() -> None:
    """A hundred of our own are enough, at five a second; twice as many come among 8000 of all."""
    loop, _ = loop_with(patience=0)
    turn(loop, 10.0, dataclasses.replace(measurement(0.020), timed=25.0))

    assert loop.window(10.0) == pytest.approx(20.0)
    assert loop.enough(10.0) == pytest.approx(8000.0)


def test_a_window_is_longer_where_few_requests_come_and_shorter_while_the_slo_burns() -> None:
    """Five requests beyond the quantile are enough, and it grows sixfold at most."""
    loop, _ = loop_with(patience=0)
    lengths = [loop.window(10.0)]
    for end, rate in ((10.0, 200.0), (20.0, 5.0), (30.0, 0.1)):
        turn(loop, end, measurement(0.020, rate=rate, end=end))
        lengths.append(loop.window(10.0))
        # Twice the requests that it needs: then the load has risen, and the usual length is enough.
        assert loop.enough(10.0) == pytest.approx(math.inf if lengths[-1] == 10.0 else 200.0)
    assert lengths == pytest.approx([10.0, 10.0, 20.0, 60.0])

    for end in range(40, 100, 10):
        turn(loop, end, measurement(0.020 if end < 70 else 0.090, rate=200.0, end=float(end)))

    assert loop.window(10.0) == 5.0


def test_windows_are_shorter_only_while_the_budget_burns_fast_and_still_does() -> None:
    """Three of the last twelve broke the SLO, one of them among the last three; another good one is known."""
    loop, _ = loop_with(patience=0)
    turn(loop, 0.0, measurement(0.020, running=configuration(8)))

    lengths = ""
    for number, kept in enumerate("++++++++++++-+-+-++++", 1):
        turn(loop, 10.0 * number, measurement(0.020 if kept == "+" else 0.090, end=10.0 * number))
        lengths += "s" if loop.window(10.0) == 5.0 else "."

    assert lengths == "................sss.."


@pytest.mark.parametrize(("every", "explores"), [(4, True), (12, False)])
def test_the_error_budget_protects_only_what_keeps_the_slo_steadily(every: int, explores: bool) -> None:
    """Where every fourth window is broken as it is, holding still is no better than looking for more."""
    loop, agent = loop_with(patience=1000)
    for number in range(1, 25):
        window = measurement(0.020 if number % every else 0.040, end=10.0 * number)
        assert isinstance(turn(loop, window.end, window), Hold)
    assert loop.memory.budget_spent
    agent.proposals = [SPACE.encode(configuration(2))]

    decision = turn(loop, 250.0, measurement(0.020, end=250.0))

    assert isinstance(decision, Apply) is explores
    assert explores or "not exploring" in decision.reason


def test_restores_the_last_good_configuration_when_the_server_returns() -> None:
    """A restarted server runs its file's configuration; the loop says what to put back."""
    loop, _ = loop_with()
    turn(loop, 10.0, measurement(0.015, running=configuration(8)))

    restore = loop.restoration(configuration())

    assert restore is not None
    assert restore.configuration == configuration(8)
    assert loop.restoration(configuration(8)) is None


def test_what_a_server_gets_back_is_the_best_that_is_known_to_keep_the_slo() -> None:
    """Not what ran last, and nothing while no window has kept the SLO."""
    loop, _ = loop_with()
    turn(loop, 10.0, measurement(0.090, running=configuration(4)))
    assert loop.restoration(configuration()) is None

    turn(loop, 20.0, measurement(0.010, running=configuration(8), end=20.0))
    turn(loop, 30.0, measurement(0.025, running=configuration(2), end=30.0))

    restore = loop.restoration(configuration())
    assert restore is not None
    assert restore.configuration == configuration(8)


def test_same_measurements_give_the_same_decisions() -> None:
    """Decisions are functions of what was seen: a recorded run replays identically."""

    def play() -> list[str]:
        loop, _ = loop_with(configuration(2), configuration(4), configuration(8))
        decisions = []
        running = configuration()
        for end, p95 in [(10.0, 0.02), (20.0, 0.025), (30.0, 0.05), (40.0, 0.02), (50.0, 0.02)]:
            decision = turn(loop, end, measurement(p95, running=running, end=end))
            if not isinstance(decision, Hold):
                if isinstance(decision, Apply):
                    changed(loop, running)
                running = decision.configuration
            decisions.append(repr(decision))
        return decisions

    assert play() == play()


def test_an_earlier_life_is_remembered() -> None:
    """What was tried counts, the agent learns what it does not know yet, and nothing is decided."""
    loop, agent = loop_with()
    good, bad = configuration(4), configuration(16)

    loop.observe(Remembered(24, bad, 1.4, False, learn=False))
    loop.observe(Remembered(24, good, 0.6, True))

    assert loop.level == 24
    assert loop.memory.at(24).good == [SPACE.encode(good)]
    assert loop.memory.at(24).tried == [SPACE.encode(good), SPACE.encode(bad)]
    assert [(level, SPACE.decode(c)) for level, c, _ in agent.updates] == [(24, good)]


def test_who_only_watches_does_not_explore() -> None:
    """A proposal is the best that is known, or none."""
    agent = ScriptedAgent(configuration(2))
    loop = ControlLoop(SPACE, OBJECTIVE, agent, explore=lambda: False)

    first = turn(loop, 10.0, measurement(0.020))
    agent.learned[SPACE.encode(configuration(2))] = 0.1
    second = turn(loop, 10.0, measurement(0.020))

    assert isinstance(first, Hold)
    assert isinstance(second, Apply)
    assert not second.exploring
    assert agent.selects == 0


def test_a_window_is_at_least_as_long_as_the_slo() -> None:
    """A shorter one could not show that it was broken; nor does it end early because many requests came.

    Six times the usual length is the most.
    """
    slow = dataclasses.replace(OBJECTIVE, slo=Slo(statistic="p95", latency=8.0))
    loop = ControlLoop(SPACE, slow, ScriptedAgent())
    first = loop.window(5.0), loop.window(0.5)
    turn(loop, 8.0, measurement(2.0))

    assert first == (loop.window(5.0), loop.window(0.5)) == (8.0, 3.0)
    assert loop.enough(5.0) == math.inf
