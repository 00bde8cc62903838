"""What all searches share: the budget, the way to a proposal, holding the best; and random search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, RATES, make_space, surface
from tuner.agents import State
from tuner.agents.rivals.random_search import RandomSearch
from tuner.agents.rivals.search import AGAIN, SearchParameters
from tuner.knobs import Knob, KnobSpace

SPACE = make_space()
TRUTH = surface(SPACE, RATES[HIGH])


def at(configuration: int, level: int = HIGH) -> State:
    return State(level=level, configuration=configuration)


def measure(agent: RandomSearch, windows: int, *, level: int = HIGH, start: int = 0) -> list[int]:
    """Let it choose freely; costs are exact."""
    chosen = [start]
    for _ in range(windows):
        chosen.append(agent.select(at(chosen[-1], level)))
        agent.update(at(chosen[-1], level), chosen[-1], float(TRUTH[chosen[-1]]), at(chosen[-1], level))
    return chosen[1:]


def test_starts_with_the_start_and_measures_each_once() -> None:
    """No configuration is measured twice before the budget is used."""
    chosen = measure(RandomSearch(SPACE, SearchParameters(start=17, budget=40)), 40)

    assert chosen[0] == 17
    assert len(set(chosen)) == 40


def test_holds_the_best_when_the_budget_is_used() -> None:
    """And whenever the load comes back."""
    agent = RandomSearch(SPACE, SearchParameters(budget=20))
    searched = measure(agent, 20)
    best = min(searched, key=lambda c: TRUTH[c])

    held = measure(agent, 5)
    measure(agent, 5, level=LOW)

    assert held == [best] * 5
    assert measure(agent, 2) == [best] * 2


def test_lucky_measurement_does_not_last() -> None:
    """What is held is measured again and again, and given up when another is cheaper."""
    agent = RandomSearch(SPACE, SearchParameters(budget=2))
    for configuration, cost in ((5, 0.5), (9, 0.6)):
        agent.update(at(configuration), configuration, cost, at(configuration))
    assert agent.select(at(0)) == 5

    agent.update(at(5), 5, 0.9, at(5))

    assert agent.select(at(5)) == 9


def test_change_of_the_server_is_followed() -> None:
    """After hundreds of windows the mean of what is held is that of the last dozen or so."""
    agent = RandomSearch(SPACE, SearchParameters(budget=2))
    agent.update(at(9), 9, 0.8, at(9))
    for _ in range(300):
        agent.update(at(5), 5, 0.5, at(5))

    for _ in range(12):
        agent.update(at(5), 5, 1.2, at(5))

    assert agent.select(at(5)) == 9


def test_new_load_begins_with_the_best_of_the_nearest() -> None:
    """The first proposal there."""
    agent = RandomSearch(SPACE, SearchParameters(budget=20))
    best = min(measure(agent, 20), key=lambda c: TRUTH[c])

    assert agent.select(at(3, HIGH - 1)) == best


def test_goes_to_a_proposal_in_allowed_steps() -> None:
    """Each step is nearer, what is measured on the way counts, and the proposal stays the same."""
    agent = RandomSearch(SPACE, SearchParameters(start=SPACE.size - 1))
    current, distances = 0, [float(SPACE.distance(0, SPACE.size - 1))]
    while distances[-1]:
        current = agent.select(at(current), SPACE.region(current, 2.0))
        agent.update(at(current), current, 1.0, at(current))
        distances.append(SPACE.distance(current, SPACE.size - 1))

    assert distances == sorted(distances, reverse=True)
    assert len(set(distances)) == len(distances)
    assert agent.records.windows(HIGH) == len(distances) - 1


@pytest.mark.parametrize("seed", range(5))
def test_proposals_out_of_reach_are_given_up(seed: int) -> None:
    """Where only one knob may move, no window is wasted on the others' values."""
    agent = RandomSearch(SPACE, SearchParameters(budget=60), seed=seed)
    line = np.array([0, 1])
    chosen, current = [], 0
    for _ in range(4):
        current = agent.select(at(current), line)
        agent.update(at(current), current, float(TRUTH[current]), at(current))
        chosen.append(current)

    assert set(chosen[:2]) == set(chosen) == {0, 1}


def test_a_best_that_is_out_of_reach_leaves_what_is_in_reach() -> None:
    """The budget is used, so that nothing else is proposed."""
    agent = RandomSearch(SPACE, SearchParameters(budget=1))
    agent.update(at(SPACE.size - 1), SPACE.size - 1, 0.1, at(0))

    assert agent.select(at(0), np.array([0])) == 0


def test_a_best_that_stays_out_of_reach_leaves_the_best_in_reach() -> None:
    """It goes as near as it can once, not again and again; where the best is in reach again it is held."""
    agent = RandomSearch(SPACE, SearchParameters(budget=3))
    best, near, far = SPACE.size - 1, SPACE.size - 2, 0
    for configuration, cost in ((best, 0.1), (near, 0.9), (far, 0.5)):
        agent.update(at(configuration), configuration, cost, at(configuration))
    chosen = [far]
    for _ in range(6):
        chosen.append(agent.select(at(chosen[-1]), np.array([far, near])))

    assert chosen == [far, near, far, far, far, far, far]
    assert agent.select(at(far), np.array([far, near, best])) == best


def test_a_best_is_sought_again_once_its_ban_has_ended() -> None:
    """A step at a time, as the guard allows: the way leads farther than where it once ended."""
    line = KnobSpace([Knob(name="batch", grid=(1, 2, 3, 4, 5), default=1)])
    agent = RandomSearch(line, SearchParameters(budget=3))
    for configuration, cost in ((4, 0.1), (1, 0.9), (0, 0.5)):
        agent.update(at(configuration), configuration, cost, at(configuration))
    current, chosen = 0, []
    for window in range(2 + AGAIN + 5):
        reach = np.arange(max(current - 1, 0), min(current + 2, line.size))
        current = agent.select(at(current), reach[reach < 2] if window < AGAIN else reach)
        agent.update(at(current), current, (0.5, 0.9, 0.9, 0.9, 0.1)[current], at(current))
        chosen.append(current)

    assert chosen[:4] == [1, 0, 0, 0]
    assert chosen[-1] == 4


def test_what_is_equal_in_effect_costs_the_same() -> None:
    """One number stands for all of them in what was measured, whichever of them is allowed."""
    batch = Knob(name="batch", grid=(1, 2), default=1)
    delay = Knob(name="delay", grid=(0, 1), default=0, idle_when=("batch", 1.0))
    agent = RandomSearch(KnobSpace([batch, delay]))
    for configuration, cost in ((0, 0.5), (2, 0.9)):
        agent.update(at(configuration), configuration, cost, at(configuration))

    assert agent.best(at(2), np.array([1, 2])) == 1


def test_all_measured_ends_the_search() -> None:
    """A budget larger than the space is no reason to go round in circles."""
    agent = RandomSearch(SPACE, SearchParameters(budget=10_000))

    chosen = measure(agent, SPACE.size + 5)

    assert sorted(chosen[: SPACE.size]) == list(range(SPACE.size))
    assert set(chosen[SPACE.size :]) == {int(np.argmin(TRUTH))}


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"noise": -0.1}])
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        SearchParameters(**wrong)
