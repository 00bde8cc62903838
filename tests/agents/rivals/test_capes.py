"""CAPES: what it takes in, what it trains towards, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import LOW
from tuner.agents import State
from tuner.agents.rivals.capes import Capes, CapesLevel, CapesLevelParameters, CapesParameters, ReplayBuffer
from tuner.agents.rivals.walker import Transition
from tuner.knobs import Knob, KnobSpace

LINE = KnobSpace([Knob(name="threads", grid=tuple(range(1, 8)), default=1)])
COSTS = np.array([2.0, 1.5, 1.1, 0.8, 0.5, 0.7, 1.2])
QUICK = CapesLevelParameters(reward="change", hidden=(32, 32), epsilon_windows=80, training_steps=4)


def at(configuration: int) -> State:
    return State(level=LOW, configuration=configuration)


def play(agent: Capes, windows: int, *, seed: int = 0, start: int = 0) -> list[int]:
    """The configurations it goes through on the line."""
    generator, current, path = np.random.default_rng(seed), start, []
    for _ in range(windows):
        current = agent.select(at(current))
        cost = float(COSTS[current] * generator.lognormal(0.0, 0.03))
        agent.update(at(current), current, cost, at(current))
        path.append(current)
    return path


def test_learns_where_to_go_and_stays() -> None:
    """Its greedy steps lead to the best from everywhere, and it spends its time there."""
    agent = CapesLevel(LINE, replace(QUICK, reward="level"), seed=1)

    path = play(agent, 200, seed=1)

    assert np.mean(COSTS[path[-50:]]) < 0.65
    for start in range(LINE.size):
        current = start
        for _ in range(8):
            current = agent._step(at(current), LINE.distinct, explore=False)
        assert COSTS[current] <= 0.7


def test_moves_by_single_steps() -> None:
    """Never farther than one step of one knob."""
    path = play(Capes(LINE, QUICK), 60)

    assert max(abs(b - a) for a, b in pairwise(path)) == 1


def test_epsilon_falls_linearly() -> None:
    """From all random to one action in twenty."""
    parameters = CapesParameters(epsilon_windows=100)

    assert [parameters.epsilon(n) for n in (0, 50, 100, 5000)] == pytest.approx([1.0, 0.525, 0.05, 0.05])


def test_replay_holds_the_latest() -> None:
    """The oldest are overwritten."""
    replay = ReplayBuffer(3, 2, 2)
    for number in range(5):
        before, after = np.full(2, number), np.full(2, number + 1)
        options = np.array([True, False])
        replay.add(Transition(before, 1, after, options, options, 2.0, 1.0), float(number))

    assert replay.count == 3
    assert sorted(replay.inputs[0, :, 0].tolist()) == [2.0, 3.0, 4.0]
    assert sorted(replay.rewards.tolist()) == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(("kind", "expected"), [(Capes, math.log(2 / 0.5)), (CapesLevel, -math.log(0.5))])
def test_reward_is_the_fall_of_the_cost_or_its_depth(kind: type[Capes], expected: float) -> None:
    """As logarithms: by what factor it fell, or how low it is."""
    agent = kind(LINE)
    for configuration, cost in ((0, 2.0), (1, 0.5)):
        agent.update(at(configuration), configuration, cost, at(configuration))

    assert agent._replay is not None
    assert agent._replay.rewards[0] == pytest.approx(expected)


def test_jumps_teach_the_network_nothing() -> None:
    """A guard that went elsewhere: what was not one step is no action of its own."""
    agent = Capes(LINE, QUICK)
    for configuration in (0, 1, 5, 5, 2):
        agent.update(at(configuration), configuration, 1.0, at(configuration))

    assert agent.windows == 2  # 0 to 1, and 5 to 5: doing nothing


def test_unknown_load_is_left_to_the_network() -> None:
    """Where no cost was measured `best` is the greedy step."""
    agent = Capes(LINE, QUICK, seed=1)
    play(agent, 30)
    agent.records.levels.clear()

    assert agent.best(at(3)) == agent._step(at(3), LINE.distinct, explore=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": ()},
        {"discount": 1.0},
        {"target_rate": 0.0},
        {"batch": 0},
        {"epsilon_last": 2.0},
        {"noise": -1},
    ],
)
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        CapesParameters(**wrong)
