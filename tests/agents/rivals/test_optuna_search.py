"""The searches with an Optuna sampler: what they propose, how long they think, and that they are quiet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, RATES, make_space, surface, windows_to_near
from tuner.agents import State
from tuner.agents.catalogue import make_agent
from tuner.agents.rivals.gp import Gp
from tuner.agents.rivals.optuna_search import OptunaParameters
from tuner.agents.rivals.tpe import Tpe
from tuner.knobs import Knob, KnobSpace

SPACE = make_space()
TRUTH = surface(SPACE, RATES[HIGH])


def at(configuration: int, level: int = HIGH) -> State:
    return State(level=level, configuration=configuration)


def fill(agent: Tpe | Gp, count: int, space: KnobSpace, seed: int = 0) -> None:
    """Let it learn the costs of some configurations."""
    generator = np.random.default_rng(seed)
    for c in generator.permutation(space.size)[:count].tolist():
        agent.update(at(c), c, float(generator.uniform(0.5, 3.0)), at(c))


@pytest.mark.parametrize(("name", "seeds"), [("tpe", 3), ("gp", 1)])
def test_finds_a_good_configuration_on_the_bed(name: str, seeds: int) -> None:
    """Cold, within 15 % of the best and staying there."""
    found = [
        windows_to_near(make_agent(name, SPACE, seed=seed), SPACE, TRUTH, HIGH, seed=seed, windows=35)[0]
        for seed in range(seeds)
    ]

    assert np.median(found) <= 30, found


@pytest.mark.parametrize("kind", [Tpe, Gp])
def test_proposes_what_was_not_measured(kind: type[Tpe | Gp]) -> None:
    """Every proposal is a new one, to the last configuration; then the search is over."""
    line = KnobSpace([Knob(name="threads", grid=tuple(range(14)), default=0)])
    agent = kind(line, kind.constants(budget=100, startup=3))
    chosen = []
    for _ in range(line.size):
        chosen.append(agent.select(at(0)))
        agent.update(at(chosen[-1]), chosen[-1], 1.0 + abs(chosen[-1] - 6), at(chosen[-1]))

    assert sorted(chosen) == list(range(line.size))
    assert agent.select(at(0)) == 6


def test_loads_have_samplers_of_their_own() -> None:
    """What is asked at one load changes no proposal at another."""
    agents = [Tpe(SPACE, seed=3) for _ in range(2)]
    for agent in agents:
        fill(agent, 15, SPACE)
        for c in range(12):
            agent.update(at(c, LOW), c, 1.0 + c, at(c, LOW))
    agents[1]._study(LOW, agents[1].records[LOW]).ask(agents[1]._distributions)

    assert agents[0].select(at(0)) == agents[1].select(at(0))


def test_model_is_built_on_a_bounded_history() -> None:
    """The cheapest half of what may be remembered, and a sample of the others."""
    agent = Tpe(SPACE, OptunaParameters(history=20, budget=100))
    fill(agent, 60, SPACE)
    record = agent.records[HIGH]

    trials = agent._study(HIGH, record).get_trials()

    steps = np.array([[trial.params[name] for name in SPACE.names] for trial in trials])
    remembered = set(np.ravel_multi_index(tuple(steps.T), SPACE.shape).tolist())
    cheapest = record.measured[np.argsort(record.cost[record.measured])][:10]
    assert len(trials) == len(remembered) == 20
    assert set(cheapest.tolist()) <= remembered


@pytest.mark.parametrize(("kind", "name"), [(Tpe, "TPESampler"), (Gp, "GPSampler")])
def test_the_model_is_used_also_after_a_start_longer_than_the_history(
    kind: type[Tpe | Gp], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told of 10 configurations a sampler does not wait for the 12 of the start: it would draw for ever."""
    import optuna

    waits, make = list[int](), getattr(optuna.samplers, name)

    def making(*, n_startup_trials: int, **others: Any) -> optuna.samplers.BaseSampler:
        waits.append(n_startup_trials)
        sampler: optuna.samplers.BaseSampler = make(n_startup_trials=n_startup_trials, **others)
        return sampler

    monkeypatch.setattr(optuna.samplers, name, making)
    agent = kind(SPACE, kind.constants(startup=12, history=10))
    fill(agent, 15, SPACE)

    trials = agent._study(HIGH, agent.records[HIGH]).get_trials()

    assert waits == [len(trials)] == [10]


def test_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Optuna logs nothing of its studies."""
    agent = Tpe(SPACE)
    fill(agent, 12, SPACE)
    agent.select(at(0))

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "wrong", [{"startup": 0}, {"history": 5}, {"tries": 0}, {"ceiling": 1.0}, {"budget": 0}]
)
def test_constants_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message says the rule and the values."""
    with pytest.raises(ValueError, match="must be"):
        OptunaParameters(**wrong)
