"""Region-based reinforcement learning: update, policy, and how fast it finds a good configuration."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, NEAR, RATES, make_space, surface, table, windows_to_near
from tuner.agents import Agent, LoadLevels, State
from tuner.agents.rrl import RRL, RRLParameters
from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.table.parameters import TableParameters

SPACE = make_space()
NEVER = EstimatorParameters(minimum_samples=10**6)
"""Of an estimation function that never trains: g = 0."""
QUICK = EstimatorParameters(hidden=(16, 8), steps=5)
TABLE = TableParameters()
PLAIN = replace(TABLE, estimator=NEVER)


def at(level: int, configuration: int = 0) -> State:
    return State(level=level, configuration=configuration)


def make(parameters: TableParameters = PLAIN, seed: int = 0) -> RRL:
    return RRL(SPACE, parameters, seed=seed, synchronous=True)


def test_keeps_the_contract() -> None:
    """mypy checks this assignment; the members exist at run time too."""
    agent: Agent = make()

    assert all(hasattr(agent, name) for name in ("select", "best", "update", "costs", "save", "close"))


def test_one_window_teaches_its_region() -> None:
    """Everything within delta is known afterwards, nothing else; untrained, at the measured cost."""
    agent = make()

    agent.update(at(LOW), 30, 2.0, at(LOW))

    known = np.flatnonzero(~np.isnan(agent.costs(LOW)))
    assert known.tolist() == SPACE.region(30, 1.0).tolist()
    assert agent.costs(LOW)[known].tolist() == [2.0] * known.size
    assert np.isnan(agent.costs(HIGH)).all()


def test_delta_zero_is_plain_q_learning() -> None:
    """Only the measured configuration is updated."""
    agent = make(replace(PLAIN, delta=0.0))

    agent.update(at(LOW), 30, 2.0, at(LOW))

    assert np.flatnonzero(~np.isnan(agent.costs(LOW))).tolist() == [30]


def test_measurement_outweighs_neighbours() -> None:
    """A cost once measured hardly moves when neighbours turn out dear."""
    agent = make()
    agent.update(at(LOW), 30, 0.5, at(LOW))
    neighbours = [c for c in SPACE.neighbours(30).tolist() if c != 30]

    agent.update(at(LOW), neighbours[0], 1.0, at(LOW))

    assert 0.5 < agent.costs(LOW)[30] < 0.65
    assert agent.costs(LOW)[neighbours[0]] > 0.9


def test_costs_average_the_noise() -> None:
    """With exponent 1 the learned cost of a configuration is the mean of its windows."""
    agent = make(replace(PLAIN, delta=0.0, rate_exponent=1.0))
    for cost in (1.0, 2.0, 6.0):
        agent.update(at(LOW), 5, cost, at(LOW))

    assert agent.costs(LOW)[5] == pytest.approx(3.0)


def test_discount_moves_q_but_not_the_costs() -> None:
    """Eq. 2: Q holds gamma * min Q(s'); costs are those of one window."""
    agent = make(replace(PLAIN, delta=0.0, gamma=0.5, q0=0.4))

    agent.update(at(LOW), 5, 1.0, at(HIGH))

    assert table(agent).tables[LOW].q[5] == pytest.approx(1.0 + 0.5 * 0.4)
    assert agent.costs(LOW)[5] == 1.0


def test_paper_starts_q_at_one_over_the_number_of_configurations() -> None:
    """Algorithm 1, initialisation."""
    assert table(make()).q0 == 1 / SPACE.size
    assert table(make(replace(PLAIN, q0=0.1))).q0 == 0.1


def test_best_knows_only_what_it_learned() -> None:
    """The unknown is never best, however optimistic its start."""
    agent = make()
    agent.update(at(LOW), 30, 8.0, at(LOW))

    assert agent.best(at(LOW, 2)) == 30


def test_best_distrusts_estimates() -> None:
    """Of the measured and its estimated neighbours at the same cost, the measured is best."""
    agent = make()
    agent.update(at(LOW), 30, 0.5, at(LOW))

    assert agent.best(at(LOW, int(SPACE.neighbours(30)[0]))) == 30


def test_best_ties_go_to_the_one_in_force() -> None:
    """Then to the lowest number; nothing is drawn."""
    agent = make(replace(PLAIN, delta=0.0))
    for c in (4, 9, 12):
        agent.update(at(LOW), c, 0.5, at(LOW))

    assert agent.best(at(LOW, 9)) == 9
    assert agent.best(at(LOW, 50)) == 4


@pytest.mark.parametrize(("current", "expected"), [(7, 7), (60, 6)])
def test_best_without_knowledge_stays(current: int, expected: int) -> None:
    """The configuration in force if it is allowed, else the first that is."""
    assert make().best(at(LOW, current), np.array([6, 7, 8])) == expected


def test_best_keeps_to_the_allowed() -> None:
    """Even if something better is known elsewhere."""
    agent = make(replace(PLAIN, delta=0.0))
    agent.update(at(LOW), 4, 0.1, at(LOW))
    agent.update(at(LOW), 9, 0.9, at(LOW))

    assert agent.best(at(LOW, 4), np.array([8, 9, 10])) == 9


def test_select_keeps_to_the_allowed_and_tries_the_unknown() -> None:
    """A dear region is left for configurations nothing is known about."""
    agent = make()
    for _ in range(10):
        agent.update(at(LOW), 0, 20.0, at(LOW))
    allowed = SPACE.region(0, 2.0)
    known = set(SPACE.region(0, 1.0).tolist())

    chosen = {agent.select(at(LOW), allowed) for _ in range(50)}

    assert chosen <= set(allowed.tolist())
    assert not chosen & known


def test_select_becomes_nearly_greedy_but_not_quite() -> None:
    """After many windows the best is chosen nearly always, what is a little dearer now and then."""
    agent = make(replace(PLAIN, delta=0.0))
    for _ in range(40):
        for c, cost in enumerate((0.5, 0.53, 0.8, 5.0)):
            agent.update(at(LOW), c, cost, at(LOW))

    counts = np.bincount([agent.select(at(LOW), np.arange(4)) for _ in range(2000)], minlength=4)

    assert counts[0] > 1700
    assert counts[1] > 20
    assert counts[2] + counts[3] < 20


def test_beta_grows_and_stops() -> None:
    """From exploration to exploitation, without overflow in a year of windows."""
    parameters = RRLParameters(beta_first=2.0, beta_growth=1.5, beta_last=10.0)

    assert [parameters.beta(n) for n in (0, 1, 2, 10**9)] == pytest.approx([2.0, 3.0, 4.5, 10.0])


def test_policy_does_not_depend_on_the_unit_of_cost() -> None:
    """Costs ten times as large give the same probabilities."""
    small, large = make(replace(PLAIN, q0=0.02)), make(replace(PLAIN, q0=0.2))
    for c, cost in ((0, 0.4), (30, 0.6), (60, 1.1)):
        small.update(at(LOW), c, cost, at(LOW))
        large.update(at(LOW), c, 10 * cost, at(LOW))

    ours, theirs = (a.probabilities(at(LOW), np.arange(SPACE.size)) for a in (small, large))
    assert ours == pytest.approx(theirs)
    assert ours.sum() == pytest.approx(1.0)


def test_new_level_starts_from_the_nearest() -> None:
    """What was best at a load near by is best at first; without `carry` it is explored from nothing.

    A level only names a load, and that of a load near the border of two may be either.
    """
    carrying, forgetting = make(), make(replace(PLAIN, carry=False))
    for agent in (carrying, forgetting):
        agent.update(at(LOW), 40, 0.4, at(LOW))
        agent.update(at(LOW), 0, 5.0, at(LOW))

    assert carrying.best(at(LOW + 1, 3)) == 40
    assert forgetting.best(at(LOW + 1, 3)) == 40
    for agent in (carrying, forgetting):
        assert np.isnan(agent.costs(LOW + 1)).all()
    assert np.ptp(forgetting.probabilities(at(LOW + 1, 3), np.arange(SPACE.size))) == 0
    assert np.ptp(carrying.probabilities(at(LOW + 1, 3), np.arange(SPACE.size))) > 0


@pytest.mark.parametrize("cost", [math.nan, math.inf, -0.1])
def test_costs_that_are_none_are_refused(cost: float) -> None:
    """The caller drops windows without a cost; nothing is learned from such a mistake."""
    agent = make()

    with pytest.raises(ValueError, match="finite"):
        agent.update(at(LOW), 0, cost, at(LOW))

    assert table(agent).tables == {}


def test_nothing_allowed_is_refused() -> None:
    """There is no answer to it."""
    with pytest.raises(ValueError, match="at least one"):
        make().select(at(LOW), np.array([], dtype=np.int64))


def test_cost_of_zero_is_learned() -> None:
    """An objective may be free of cost; the temperature has a floor."""
    agent = make(replace(PLAIN, estimator=QUICK))
    for c in range(8):
        agent.update(at(LOW), c, 0.0, at(LOW))

    assert 0 <= agent.select(at(LOW)) < SPACE.size


def test_transferred_knowledge_yields_to_one_measurement() -> None:
    """After `transfer` a hundred simulated windows weigh less than one real one."""
    agent = make()
    for _ in range(100):
        agent.update(at(LOW), 30, 0.5, at(LOW))

    agent.transfer(synchronous=True)
    agent.update(at(LOW), 30, 1.0, at(LOW))

    assert agent.costs(LOW)[30] > 0.9


def test_same_seed_same_decisions() -> None:
    """Synchronous training makes runs repeatable."""
    truth = surface(SPACE, RATES[LOW])
    parameters = replace(TABLE, estimator=QUICK)

    ends = [
        windows_to_near(make(parameters, seed=4), SPACE, truth, LOW, seed=4, windows=15) for _ in range(2)
    ]

    assert ends[0] == ends[1]


def test_finds_a_good_configuration_in_few_windows() -> None:
    """Cold, one load after the other: within 15 % of the best and staying there, median of 3 seeds."""
    found: dict[int, list[int]] = {LOW: [], HIGH: []}
    for seed in range(3):
        agent, current = RRL(SPACE, seed=seed, synchronous=True), 0
        for level in (LOW, HIGH):
            truth = surface(SPACE, RATES[level])
            window, current = windows_to_near(
                agent, SPACE, truth, level, seed=seed, windows=40, start=current
            )
            found[level].append(window)

    assert np.median(found[LOW]) <= 25, found
    assert np.median(found[HIGH]) <= 25, found


def test_warm_start_finds_it_at_once() -> None:
    """Trained where everything costs 25 % more or 20 % less: median of 3 seeds <= 10 windows."""
    truth, found = surface(SPACE, RATES[HIGH]), []
    for seed, factor in enumerate((0.8, 1.25, 0.8)):
        agent = RRL(SPACE, seed=seed, synchronous=True)
        windows_to_near(agent, SPACE, truth * factor, HIGH, seed=seed + 50, windows=40)
        agent.transfer(synchronous=True)
        found.append(windows_to_near(agent, SPACE, truth, HIGH, seed=seed, windows=20)[0])

    assert np.median(found) <= 10, found


def test_live_agent_trains_behind_the_windows() -> None:
    """By default the estimation function has a thread, and closing ends it."""
    agent = RRL(SPACE, replace(TABLE, estimator=QUICK))
    for c in range(8):
        agent.update(at(LOW), c, 1.0, at(LOW))

    finished = table(agent).trainer.wait(120)
    agent.close()
    agent.close()

    assert finished
    assert table(agent).estimator.trained


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": -1.0},
        {"gamma": 1.0},
        {"rate_exponent": 0.5},
        {"beta_first": 9999.0},
        {"optimism": 2.0},
        {"q0": -1.0},
    ],
)
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must hold"):
        TableParameters(**wrong)


def test_near_is_what_the_issue_says() -> None:
    """The bed is no gift: a minority of configurations is near the best, and overload exists."""
    truth = surface(SPACE, RATES[HIGH])

    assert NEAR == 1.15
    assert (truth <= NEAR * truth.min()).sum() < 8
    assert (truth > 5).sum() > 20
    assert LoadLevels().level(RATES[HIGH]) == HIGH
