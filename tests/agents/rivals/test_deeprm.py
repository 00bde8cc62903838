"""DeepRM: returns, baseline, and that the policy improves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agents.bed import LOW
from tests.agents.rivals.test_capes import COSTS, LINE, at
from tuner.agents import State
from tuner.agents.rivals.deeprm import DeepRM, DeepRMParameters, returns


def play(agent: DeepRM, windows: int, seed: int) -> list[int]:
    """The configurations it goes through on the line."""
    generator, current, path = np.random.default_rng(seed), 0, []
    for _ in range(windows):
        current = agent.select(at(current))
        cost = float(COSTS[current] * generator.lognormal(0.0, 0.03))
        agent.update(at(current), current, cost, at(current))
        path.append(current)
    return path


def test_returns_by_hand() -> None:
    """With discount 1 and one half."""
    assert returns(np.array([1.0, 2.0, 4.0]), 1.0).tolist() == [7.0, 6.0, 4.0]
    assert returns(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]


def test_policy_improves() -> None:
    """On the line it spends its last windows cheaper than its first, in the mean of three runs."""
    paths = [play(DeepRM(LINE, seed=seed), 600, seed) for seed in range(3)]

    first, last = (
        np.mean([COSTS[path[part]].mean() for path in paths]) for part in (slice(100), slice(-100, None))
    )

    assert last < 0.7 * first


def test_learns_after_every_episode() -> None:
    """Not before; and the first episode, which is its own baseline, changes nothing."""
    agent = DeepRM(LINE, DeepRMParameters(episode=5))
    play(agent, 6, 0)  # the first window ends no step
    before = agent._arrays()["network_0_0.weight"].copy()
    play(agent, 4, 1)
    during = agent._arrays()["network_0_0.weight"].copy()
    play(agent, 4, 2)

    np.testing.assert_array_equal(before, during)
    assert not np.array_equal(before, agent._arrays()["network_0_0.weight"])


def test_policy_is_a_distribution_over_the_options() -> None:
    """Nothing impossible has a probability."""
    agent = DeepRM(LINE)
    play(agent, 3, 0)
    inputs = agent.inputs.standardised(agent.inputs.raw(State(level=LOW, configuration=0), 1.0))

    probabilities = agent.probabilities(inputs, np.array([True, False, True]))

    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities[1] == 0.0
    assert (probabilities[[0, 2]] > 0).all()


@pytest.mark.parametrize(
    "wrong", [{"hidden": (0,)}, {"discount": 1.1}, {"episode": 0}, {"episodes": 1}, {"passes": 0}]
)
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        DeepRMParameters(**wrong)
