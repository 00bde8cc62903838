"""The search for a better configuration: where it may look, when it ends, and what is worth a change."""

from __future__ import annotations

import dataclasses

import numpy as np
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
from tuner.control import Apply, ControlLoop, Hold, Rollback
from tuner.control.decide.event import Failed, InForce
from tuner.knobs import KnobSpace


def test_steps_into_the_unknown_are_bounded() -> None:
    """The agent is offered nothing farther than the limit, unless it is known to be good."""
    far = configuration(16, 0.01, 2)
    loop, _ = loop_with(far, step=2.0)

    decision = turn(loop, 10.0, measurement(0.020))

    assert isinstance(decision, Hold)


def test_the_search_ends_when_nothing_better_is_found() -> None:
    """After the patience the best stays."""
    others = [configuration(b, d, i) for b in (2, 4, 8, 16) for d in (0.0, 0.002) for i in (1, 2)]
    loop, agent = loop_with(*others * 9, patience=3)

    explored = []
    for window, running in enumerate(others[:8], 1):
        agent.selects = 0
        turn(loop, window * 10.0, measurement(0.010, running=running, end=window * 10.0))
        explored.append(bool(agent.selects))

    assert explored == [True] * 4 + [False] * 4


def test_small_gains_between_tried_configurations_do_not_disturb_the_server() -> None:
    """Switching costs the server a reload, so it must be worth it."""
    loop, _ = loop_with(configuration(2), configuration())
    turn(loop, 10.0, measurement(0.0190))
    changed(loop, configuration())

    decision = turn(loop, 20.0, measurement(0.020, running=configuration(2), end=20.0))

    assert isinstance(decision, Hold)
    assert "by more than chance explains" in decision.reason


def test_nothing_is_explored_in_the_first_window_under_a_new_load() -> None:
    """The load may go on rising, and nothing is known of it: the server is left as it is for a window."""
    loop, _ = loop_with(configuration(2), configuration(2))
    turn(loop, 10.0, measurement(0.020, rate=100.0))

    first = turn(loop, 20.0, measurement(0.025, rate=300.0, end=20.0))
    second = turn(loop, 30.0, measurement(0.025, rate=300.0, end=30.0))

    assert isinstance(first, Hold)
    assert "the first window under this load" in first.reason
    assert isinstance(second, Apply)


def test_one_bad_window_of_a_good_configuration_is_no_reason_to_search() -> None:
    """It has kept the SLO many times: nothing untried is better founded."""
    loop, agent = loop_with(configuration(2), patience=0)
    for end in range(10, 60, 10):
        turn(loop, float(end), measurement(0.020, end=float(end)))
    agent.selects = 0

    decision = turn(loop, 60.0, measurement(0.045, end=60.0))

    assert isinstance(decision, Hold)
    assert agent.selects == 0


def test_what_breaks_the_slo_twice_in_a_row_is_not_good_any_more() -> None:
    """Then the search begins again."""
    loop, _ = loop_with(*[configuration(2)] * 9, patience=0)
    for end in range(10, 60, 10):
        turn(loop, float(end), measurement(0.020, end=float(end)))

    turn(loop, 60.0, measurement(0.045, end=60.0))
    decision = turn(loop, 70.0, measurement(0.045, end=70.0))

    assert isinstance(decision, Apply)
    assert "exploring" in decision.reason


def test_what_breaks_the_slo_every_third_window_is_not_good() -> None:
    """It would use up the error budget for good; where it breaks the SLO, something else is tried."""
    loop, _ = loop_with(*[configuration(2)] * 30)
    for end in range(1, 10):
        decision = turn(loop, 10.0 * end, measurement(0.020 if end % 3 else 0.045, end=10.0 * end))

    assert isinstance(decision, Apply)
    assert loop.memory.at(loop.level or 0).good == []


def test_a_spent_budget_does_not_keep_from_searching_where_nothing_known_keeps_the_slo() -> None:
    """There is nothing left to lose: without a search the SLO would stay broken for good."""
    loop, agent = loop_with(budget=0.01)
    for end in range(5):
        turn(loop, 10.0 * end, measurement(0.020, end=10.0 * end))
    agent.proposals = [SPACE.encode(configuration(b)) for b in (2, 4, 8) * 3]

    decisions = [turn(loop, end, measurement(0.050, end=end)) for end in (50.0, 60.0, 70.0)]

    assert loop.memory.budget_spent
    assert isinstance(decisions[-1], Apply)
    assert "exploring" in decisions[-1].reason


def test_where_nothing_keeps_the_slo_the_changes_end() -> None:
    """Every configuration breaks it in most windows: what is lost anyway is not added to by changes."""
    loop, agent = loop_with(*[configuration(b) for b in (2, 4, 8, 1) * 30], patience=5)
    running, changes = configuration(), []
    for end in range(1, 120):
        decision = turn(
            loop, 10.0 * end, measurement(0.033 if end % 3 else 0.029, running=running, end=10.0 * end)
        )
        agent.learned[SPACE.encode(running)] = 1.05
        if isinstance(decision, (Apply, Rollback)):
            changes.append(end)
            loop.observe(InForce(running))
            running = decision.configuration

    assert sum(end < 30 for end in changes) >= 3
    assert sum(end > 60 for end in changes) <= 10
    assert SPACE.encode(running) in agent.learned


def test_a_search_that_found_nothing_leads_back_to_the_best_of_those_tried() -> None:
    """However far away it lies; nothing new is tried."""
    best = configuration(16, 0.01, 2)
    loop, agent = loop_with(patience=3)
    for number in range(8):
        running, p95 = (best, 0.060) if number == 0 else (configuration(), 0.200)
        decision = turn(loop, 10.0 * number, measurement(p95, running=running, end=10.0 * number))
    explored, agent.selects = agent.selects, 0

    again = turn(loop, 80.0, measurement(0.200, end=80.0))

    assert explored > 0
    assert agent.selects == 0
    for one in (decision, again):
        assert isinstance(one, Apply)
        assert one.configuration == best


BEFORE, OTHER = configuration(), configuration(2)


def test_what_seldom_breaks_the_slo_is_not_left_for_what_may_be_no_better() -> None:
    """The window that broke it was one of eleven; the other was seen once."""
    loop, _ = loop_with()
    turn(loop, 0.0, measurement(0.0195, running=OTHER, end=0.0))
    for end in range(10, 110, 10):
        turn(loop, end, measurement(0.020, running=BEFORE, end=float(end)))

    decision = turn(loop, 110.0, measurement(0.045, running=BEFORE, end=110.0))

    assert isinstance(decision, Hold)
    assert decision.reason.endswith("no known configuration is better by more than chance explains")


@pytest.mark.parametrize(("p95", "leaves"), [(0.031, True), (0.0299, False)])
def test_what_mostly_breaks_the_slo_is_left_for_what_may_keep_it(p95: float, leaves: bool) -> None:
    """Although by cost they differ by no more than chance explains; not while a window keeps the SLO."""
    loop, _ = loop_with(*[OTHER] * 9)
    turn(loop, 0.0, measurement(0.0295, running=OTHER, end=0.0))
    for end in (10.0, 20.0, 30.0):
        turn(loop, end, measurement(0.031, running=BEFORE, end=end))

    decision = turn(loop, 40.0, measurement(p95, running=BEFORE, end=40.0))

    assert isinstance(decision, Apply if leaves else Hold)
    assert leaves or "by more than chance explains" in decision.reason


def test_of_configurations_that_are_alike_the_agent_is_offered_one() -> None:
    """Without batching the delay has no effect: another one would be a change for nothing."""
    batch, delay, instances = SPACE.knobs
    space = KnobSpace([batch, dataclasses.replace(delay, idle_when=("max_batch_size", 1)), instances])
    offered: list[np.ndarray] = []

    class Asked(ScriptedAgent):
        def select(self, state: State, allowed: np.ndarray | None = None) -> int:
            offered.extend([] if allowed is None else [allowed])
            return state.configuration

    turn(ControlLoop(space, OBJECTIVE, Asked()), 10.0, measurement(0.020))

    assert offered[0].size > 1
    assert np.array_equal(space.canonical[offered[0]], offered[0])


def test_who_only_watches_has_no_search_that_ends() -> None:
    """However often the SLO is broken, what is expected to be better is proposed."""
    agent = ScriptedAgent()
    agent.learned[SPACE.encode(configuration(2))] = 0.1
    loop = ControlLoop(SPACE, OBJECTIVE, agent, explore=lambda: False)

    decisions = [turn(loop, 10.0 * number, measurement(0.200)) for number in range(30)]

    assert {type(one) for one in decisions} == {Apply}


def test_a_search_does_not_end_while_the_server_refuses_everything() -> None:
    """Nothing was tried then: it goes on when the server takes changes again."""
    agent = ScriptedAgent(*[configuration(2)] * 99)
    loop = ControlLoop(SPACE, OBJECTIVE, agent)
    for number in range(40):
        decision = turn(loop, 10.0 * number, measurement(0.200))
        if isinstance(decision, Apply):
            loop.observe(Failed(decision))

    assert not loop.memory.search_over(loop.level or 0)
