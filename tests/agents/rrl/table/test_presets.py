"""The paper's form of RRL and that of its authors' code, held to their equations step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, make_space, table
from tests.agents.naive import boltzmann
from tuner.agents import State
from tuner.agents.rrl import RRL
from tuner.agents.rrl.forms import form
from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.table.presets import CODE, PAPER, PRESETS

SPACE = make_space()
SMALL_NETWORK = {"estimator": {"hidden": [8, 4], "steps": 2}}
NEVER = EstimatorParameters(minimum_samples=10**6)


def at(level: int, configuration: int = 0) -> State:
    return State(level=level, configuration=configuration)


def test_paper_is_equation_2() -> None:
    """Q of the region after two windows by hand: a_t = t ** -0.8, gamma, Q0 = 1/|C|, f(c, r) = r."""
    agent = RRL(SPACE, replace(PAPER, estimator=NEVER, gamma=0.5), synchronous=True)
    region, q0 = SPACE.region(30, 1.0), 1 / SPACE.size

    agent.update(at(LOW), 30, 2.0, at(HIGH))
    first = table(agent).tables[LOW].q.copy()
    agent.update(at(LOW), 30, 1.0, at(LOW))
    second = table(agent).tables[LOW].q

    rate = 2**-0.8
    assert first[region] == pytest.approx(2.0 + 0.5 * q0)
    assert second[region] == pytest.approx((1 - rate) * (2.0 + 0.5 * q0) + rate * (1.0 + 0.5 * q0))
    outside = np.setdiff1d(np.arange(SPACE.size), region)
    assert second[outside].tolist() == [q0] * outside.size


def test_paper_policy_is_equation_3() -> None:
    """Probabilities are exp(-beta Q) over their sum, of all configurations, known or not."""
    agent = RRL(SPACE, replace(PAPER, estimator=NEVER, beta_growth=1.0, beta_first=3.0), synchronous=True)
    for c, cost in ((0, 0.4), (30, 0.6), (60, 1.1)):
        agent.update(at(LOW), c, cost, at(LOW))

    q = table(agent).tables[LOW].q[SPACE.distinct]
    ours = agent.probabilities(at(LOW), SPACE.distinct).tolist()

    assert ours == pytest.approx(boltzmann(q.tolist(), 3.0))


def test_paper_estimates_weigh_as_much_as_measurements() -> None:
    """Two windows next door and one of its own: the mean with rates 1, 2^-0.8, 3^-0.8."""
    agent = RRL(SPACE, replace(PAPER, estimator=NEVER, gamma=0.0), synchronous=True)
    neighbour = int(SPACE.neighbours(30)[0])
    for c, cost in ((neighbour, 1.0), (neighbour, 2.0), (30, 4.0)):
        agent.update(at(LOW), c, cost, at(LOW))

    expected = 1.0
    for t, cost in ((2, 2.0), (3, 4.0)):
        expected += t**-0.8 * (cost - expected)
    assert table(agent).tables[LOW].q[30] == pytest.approx(expected)


def test_paper_knows_nothing_of_other_levels() -> None:
    """Each state has a Q of its own."""
    agent = RRL(SPACE, PAPER, synchronous=True)
    agent.update(at(LOW), 30, 2.0, at(LOW))

    assert np.isnan(agent.costs(HIGH)).all()
    assert (
        agent.perception.values(at(HIGH), SPACE.distinct).tolist() == [1 / SPACE.size] * SPACE.distinct.size
    )


def test_code_shares_one_table_that_starts_at_the_first_cost() -> None:
    """What is unknown costs as much as the first window showed; a = 0.3 from the first window on."""
    agent = RRL(SPACE, replace(CODE, estimator=NEVER), synchronous=True)

    agent.update(at(LOW), 30, 2.0, at(LOW))
    agent.update(at(HIGH), 30, 1.0, at(HIGH))

    q = agent.perception.values(at(LOW), np.arange(SPACE.size))
    region = SPACE.region(30, 3.0)
    assert q[region] == pytest.approx(0.7 * 2.0 + 0.3 * 1.0)
    assert q[np.setdiff1d(np.arange(SPACE.size), region)] == pytest.approx(2.0)
    assert list(table(agent).tables) == [0]


def test_code_policy_is_a_softmax_of_one_over_q() -> None:
    """20e6 over microseconds; the unit says how long a cost of 1 is."""
    agent = RRL(SPACE, replace(CODE, estimator=NEVER, unit=0.5, delta=0.0), synchronous=True)
    for c, cost in ((0, 1.0), (1, 0.8)):
        for _ in range(40):
            agent.update(at(LOW), c, cost, at(LOW))

    probability = agent.probabilities(at(LOW), np.array([0, 1]))[0]

    assert probability == pytest.approx(1 / (1 + np.exp(50.0 - 40.0)), rel=0.01)


def test_code_estimates_are_not_anchored() -> None:
    """Only what was measured is taken as it was; neighbours are what the network says."""
    agent = RRL(SPACE, form("rrl_code", {"estimator": {"hidden": [8, 4], "steps": 3}}), synchronous=True)
    for c in range(0, 60, 7):
        agent.update(at(LOW), c, 1.0 + c / 60, at(LOW))

    estimator = table(agent).estimator
    near = np.array([30, 31])
    estimates = estimator.estimates(LOW, near, 30, 5.0)

    assert estimates[0] == 5.0
    assert estimates[1] == pytest.approx(np.exp(estimator.log_costs(LOW, near))[1])


def test_code_network_starts_from_scratch() -> None:
    """Its weights after a window owe nothing to those before: they are of another random start."""
    agent = RRL(SPACE, form("rrl_code", {"estimator": {"hidden": [8, 4], "steps": 1}}), synchronous=True)
    agent.update(at(LOW), 3, 1.0, at(LOW))
    before = table(agent).estimator.weights[0]
    agent.update(at(LOW), 3, 1.0, at(LOW))

    assert not np.allclose(before, table(agent).estimator.weights[0], atol=0.5)


@pytest.mark.parametrize("name", ["rrl", *PRESETS])
def test_same_seed_same_decisions(name: str) -> None:
    """A run is resumed by replaying its windows."""

    def play() -> list[int]:
        agent = RRL(SPACE, form(name, SMALL_NETWORK if name != "rrl" else {}), seed=3, synchronous=True)
        choices = []
        for window in range(15):
            choices.append(agent.select(at(LOW)))
            agent.update(at(LOW), choices[-1], 1.0 + choices[-1] % 5 + window / 50, at(LOW))
        return choices

    assert play() == play()
