"""Spaces too large to be looked at as a whole: what is known to be good stays in sight."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.bed import LOW, RATES
from tuner.agents import State
from tuner.agents.rrl import RRL
from tuner.agents.rrl.forms import form
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.prior import make_prior
from tuner.knobs import Knob, KnobSpace

LARGE = KnobSpace([Knob(name=name, grid=tuple(range(1, 26)), default=5) for name in "abc"])


def test_the_best_known_stays_in_sight_however_many_were_tried_since() -> None:
    """Also at a load that was never measured."""
    agent = RRL(LARGE, form("rrl", {"smoothing": {"adaptive": False}}), synchronous=True)
    best = LARGE.size // 2  # every other one is looked at, but not this
    for number, cost in [(best, 0.1), *((int(n), 1.0) for n in np.linspace(0, LARGE.size - 1, 80))]:
        state = State(level=LOW, configuration=number)
        agent.update(state, number, cost, state)

    assert agent.best(state) == best
    elsewhere = State(level=LOW + 1, configuration=number)
    assert isinstance(agent.perception, SmoothPerception)
    assert best in agent.perception.smoother.candidates(elsewhere, LARGE.distinct)


def test_what_a_policy_knows_to_be_best_is_in_sight_before_anything_is_measured() -> None:
    """What is learned in a simulation is lost otherwise."""
    best = LARGE.size // 2 + 1  # every other one is looked at, but not this
    agent = RRL(LARGE, synchronous=True)

    agent.start_from(make_prior([RATES[LOW]], lambda _: 1.0 + LARGE.distances(best)))

    assert agent.best(State(level=LOW, configuration=0)) == best
    assert agent.select(State(level=LOW, configuration=0)) == best
    assert agent.costs(LOW)[best] == pytest.approx(1.0)


def test_very_many_configurations_are_looked_at_in_part() -> None:
    """A space of 100,000 is decided on at once, from what is allowed."""
    space = KnobSpace([Knob(name=n, grid=tuple(range(1, 11)), default=1) for n in "abcde"])
    agent, state = RRL(space, synchronous=True), State(level=LOW, configuration=11111)
    for _ in range(5):
        chosen = agent.select(state)
        agent.update(state, chosen, 1.0 + chosen / 1e5, state)

    assert 0 <= chosen < space.size
