"""Agents by name."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import LOW, make_space
from tuner import plugin
from tuner.agents import Agent, LoadLevels, State
from tuner.agents.catalogue import AGENTS, agent_names, load_agent, make_agent
from tuner.agents.rivals.random_search import RandomSearch
from tuner.agents.rivals.search import SearchAgent
from tuner.agents.rrl import RRL, RRLParameters
from tuner.agents.rrl.table.parameters import TableParameters
from tuner.agents.rrl.table.perception import TablePerception
from tuner.errors import InvalidInput, StorageError
from tuner.knobs import KnobSpace
from tuner.objective import Objective, parse_slo

SPACE = make_space()
STATE = State(level=LOW, configuration=0)


INSTALLED = [name for name in AGENTS if name != "safe_gp" or find_spec("botorch") is not None]


def expected(rate: float) -> np.ndarray:
    return np.arange(SPACE.size, dtype=float)


@pytest.mark.parametrize("name", INSTALLED)
def test_every_name_makes_an_agent(name: str) -> None:
    """It chooses; and its line in the list is one line."""
    agent = make_agent(name, SPACE, seed=1, expected=expected, start=3)

    assert 0 <= agent.select(STATE) < SPACE.size
    assert "\n" not in AGENTS[name]
    agent.close()


@pytest.mark.parametrize("name", INSTALLED)
def test_levels_are_handed_on_and_saved(name: str, tmp_path: Path) -> None:
    """The grid of loads that a policy was learned on comes back with it."""
    levels = LoadLevels(ratio=1.5)
    agent: Any = make_agent(name, SPACE, levels=levels, expected=expected)  # the protocol asks for no levels

    agent.save(tmp_path)

    loaded: Any = load_agent(tmp_path, SPACE)
    assert agent.levels == loaded.levels == levels


def test_the_authors_code_knows_how_long_the_slo_is() -> None:
    """Its softmax and its labels are of latencies; costs are ratios to the SLO. A given unit wins."""
    objective = Objective(slo=parse_slo("p95=30ms"))

    made: Any = make_agent("rrl_code", SPACE, objective=objective)
    told: Any = make_agent("rrl_code", SPACE, objective=objective, parameters={"unit": 0.5})

    assert (made.parameters.unit, told.parameters.unit) == (0.03, 0.5)


def test_unknown_agent_lists_those_there_are() -> None:
    """Every name is in the message."""
    with pytest.raises(InvalidInput, match="there is no 'ppo'") as caught:
        make_agent("ppo", SPACE)

    assert all(name in str(caught.value) for name in AGENTS)


def test_constants_are_set_by_name() -> None:
    """Also from text, as the command line gives it."""
    agent = make_agent("rrl_paper", SPACE, parameters={"delta": "2", "estimator": {"steps": 7}})
    nested = make_agent("rrl", SPACE, parameters={"smoothing.adaptive": False, "smoothing.reach": "2"})

    assert isinstance(agent, RRL)
    assert isinstance(agent.parameters, TableParameters)
    assert (agent.parameters.delta, agent.parameters.estimator.steps) == (2.0, 7)
    assert isinstance(nested, RRL)
    assert isinstance(nested.parameters, RRLParameters)
    assert (nested.parameters.smoothing.adaptive, nested.parameters.smoothing.reach) == (False, 2.0)


def test_q_learning_is_rrl_with_a_region_of_a_point() -> None:
    """One window teaches about one configuration, and no network is trained."""
    agent = make_agent("q_learning", SPACE)
    for window in range(12):
        agent.update(STATE, window % 3, 1.0, STATE)

    assert isinstance(agent, RRL)
    assert np.flatnonzero(~np.isnan(agent.costs(LOW))).tolist() == [0, 1, 2]
    assert isinstance(agent.perception, TablePerception)
    assert not agent.perception.estimator.trained


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("random", {"delta": 1}, "parameter delta: unknown; there are .*budget"),
        ("random", {"budget": 0}, "parameter random: budget: must be at least 1, but got 0; "),
        ("random", {"noise": -1}, "parameter random: noise: must be at least 0, but got -1.0; "),
        ("random", {"start": 10**6}, "parameter start: there is no configuration 1000000; they are numbered"),
        ("random", {"levels.ratio": 1.5}, "parameter levels.ratio: the load levels are not the agent's own"),
        ("rrl", {"levels": {"lowest": 1}}, "parameter levels: the load levels are not the agent's own"),
        ("hill_climb", {"probes": 0}, "parameter hill_climb: probes: must be at least 1, but got 0; "),
        ("clipper_aimd", {"decrease": 1}, "parameter clipper_aimd: decrease: must be above 0 and below 1"),
        ("rrl", {"caution": -1}, r"`caution >= 0` must hold, but got caution=-1\.0"),
        ("hill_climb", {"radius": "far"}, "parameter radius: .*number"),
        ("q_learning", {"estimator": {"depth": 1}}, "parameter estimator.depth: unknown"),
        ("q_learning", {"estimator.depth": 1}, "parameter estimator.depth: unknown"),
        ("rrl_code", {"estimator.learning_rate": 0}, r"`learning_rate > 0` .* but got learning_rate=0\.0"),
        ("rrl", {"carry.more": 1}, "parameter carry.more: unknown"),
        ("rrl", {"smoothing.reach": "inf"}, "parameter smoothing.reach: inf is not finite"),
        ("rrl", {"estimator.steps": 3}, "parameter estimator.steps: means nothing in rrl: .* of rrl_paper"),
        ("rrl", {"perception": "table", "caution": 1}, "parameter caution: means nothing"),
        ("rrl", {"perception": "tables"}, "parameter perception: 'tables' is unknown; use smooth or table"),
    ],
)
def test_bad_constants_are_named(name: str, parameters: dict[str, object], message: str) -> None:
    """Unknown ones with those there are; unusable ones with the rule."""
    with pytest.raises(InvalidInput, match=message):
        make_agent(name, SPACE, parameters=parameters)


@pytest.mark.parametrize("name", ["rrl", "rrl_paper", "random"])
def test_the_constants_there_are_do_not_list_the_load_levels(name: str) -> None:
    """They are refused: they are not the agent's own."""
    with pytest.raises(InvalidInput, match="parameter nope: unknown; there are ") as told:
        make_agent(name, SPACE, parameters={"nope": 1})

    assert "levels" not in str(told.value)


@pytest.mark.parametrize("name", ["rrl", "rrl_paper", "random"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": 1.5}, "seed: 1.5 is no whole number; use 0 or a positive one"),
        ({"seed": "a"}, "seed: 'a' is no whole number"),
        ({"seed": None}, "seed: None is no whole number"),
        ({"seed": np.array([1, 2])}, r"seed: array\(\[1, 2\]\) is no whole number"),
        ({"seed": np.array(3.0)}, r"seed: array\(3.\) is no whole number"),
        ({"start": "a"}, "start: 'a' is no number of a configuration; 0 to "),
        ({"start": 1.5}, "start: 1.5 is no number of a configuration; 0 to "),
        ({"start": np.array([1, 2])}, r"start: array\(\[1, 2\]\) is no number of a configuration"),
        ({"parameters": {1: 2}}, "parameter 1: its name is no text"),
        ({"parameters": [1]}, r"parameters: \[1\] is no mapping"),
        ({"space": [1]}, r"space: \[1\] is no `KnobSpace`"),
    ],
)
def test_arguments_of_another_kind_are_named(name: str, arguments: dict[str, Any], message: str) -> None:
    """They ended in a TypeError of numpy or Python, or were ignored."""
    with pytest.raises(InvalidInput, match=message):
        make_agent(name, **{"space": SPACE, **arguments})


@pytest.mark.parametrize("name", ["rrl", "rrl_paper", "random"])
def test_a_seed_may_be_a_number_of_numpy(name: str) -> None:
    """As a loop over an array of seeds has them; 0-dimensional arrays, too."""
    for seed in (np.int64(3), np.array(3)):
        agent: Any = make_agent(name, SPACE, seed=seed)  # type: ignore[arg-type]
        assert agent._generator.random() == np.random.default_rng(3).random()
        agent.close()


def test_a_start_may_be_a_number_of_numpy() -> None:
    """As `argmin` returns it."""
    agent = make_agent("random", SPACE, start=np.int64(3))  # type: ignore[arg-type]

    assert agent.select(STATE) == 3


def test_oracle_needs_the_expected_costs() -> None:
    """Against a real server there is none."""
    with pytest.raises(InvalidInput, match="oracle: the expected costs are not known"):
        make_agent("oracle", SPACE)


@pytest.mark.parametrize("name", ["oracle", "random", "q_learning"])
def test_a_policy_says_what_its_costs_are_those_of(name: str, tmp_path: Path) -> None:
    """Under another SLO other configurations are the best, also those of the oracle."""
    short, long = (Objective(slo=parse_slo(slo)) for slo in ("p95=30ms", "p95=100ms"))
    make_agent(name, SPACE, objective=short, expected=lambda _: np.ones(SPACE.size)).save(tmp_path)

    load_agent(tmp_path, SPACE, objective=short).close()
    with pytest.raises(InvalidInput, match="p95 <= 30ms, not for the least p95 latency with p95 <= 100ms"):
        load_agent(tmp_path, SPACE, objective=long)


def test_policy_of_another_agent_is_refused(tmp_path: Path) -> None:
    """RRL does not read what a search wrote; `load_agent` finds out who did."""
    make_agent("random", SPACE).save(tmp_path)

    with pytest.raises(InvalidInput, match=r"learned by 'random', not by 'rrl'; .*tuner train --agent rrl"):
        RRL.load(tmp_path, SPACE)
    assert type(load_agent(tmp_path, SPACE)).__name__ == "RandomSearch"


def test_policy_that_is_none(tmp_path: Path) -> None:
    """An empty folder."""
    with pytest.raises(StorageError, match="cannot be read"):
        load_agent(tmp_path, SPACE)


def test_third_parties_add_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point of the group `tuner.agents` names a function that makes one."""

    mine = RandomSearch(SPACE)
    given = []

    def make(space: KnobSpace, **options: object) -> Agent:
        given.append((space, options))
        return mine

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: make)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry] if group == "tuner.agents" else [])

    assert agent_names() == [*AGENTS, "mine"]
    assert make_agent("mine", SPACE, seed=5, start=2, parameters={"a": 1}) is mine
    assert given == [(SPACE, {"seed": 5, "levels": LoadLevels(), "start": 2, "parameters": {"a": 1}})]


def test_an_entry_point_that_cannot_be_called_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in a traceback."""
    entry = SimpleNamespace(name="mine", value="mine:NUMBER", dist=None, load=lambda: 5)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    with pytest.raises(InvalidInput, match="'mine' needs mine:NUMBER, which is no function or class; repair"):
        make_agent("mine", SPACE)


def test_parameters_that_somebody_s_function_fails_with_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the agent and what it raised; its own refusal stays as it is, and so does a defect without any."""

    def make(space: KnobSpace, *, parameters: dict[str, Any], **_: object) -> Agent:
        if "spin" in parameters:
            raise InvalidInput("parameter spin", "is for another world")
        if not parameters:
            raise KeyError("a defect")
        return RandomSearch(space, **parameters)

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: make)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    said = r"parameter fast, slow: the agent mine fails with it \(TypeError: .* 'fast'\); correct it or leave"
    with pytest.raises(InvalidInput, match=said):
        make_agent("mine", SPACE, parameters={"fast": 1, "slow": 2})
    with pytest.raises(InvalidInput, match=r"^parameter spin: is for another world"):
        make_agent("mine", SPACE, parameters={"spin": 1})
    with pytest.raises(KeyError, match="a defect"):
        make_agent("mine", SPACE)


@pytest.mark.parametrize("wrong", ["soon", 0])
def test_parameters_are_named_though_somebody_s_function_took_them_out(
    monkeypatch: pytest.MonkeyPatch, wrong: object
) -> None:
    """It has a copy of its own; one value is no number, and it divides by the other."""

    def make(space: KnobSpace, *, parameters: dict[str, Any], **_: object) -> Agent:
        return RandomSearch(space, seed=int(1 / float(parameters.pop("pace"))))

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: make)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    with pytest.raises(InvalidInput, match=r"^parameter pace: the agent mine fails with it \((Value|Zero)"):
        make_agent("mine", SPACE, parameters={"pace": wrong})


def test_a_function_that_cannot_be_called_as_agents_are_made_is_a_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No parameter is to blame for that."""
    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: lambda space, *, parameters: None)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    with pytest.raises(TypeError, match="unexpected keyword argument"):
        make_agent("mine", SPACE, parameters={"pace": 1})


def test_third_party_functions_load_what_their_agents_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If they can; else the message says what is missing."""

    class Mine(RandomSearch):
        name = "mine"

    class Make:
        def __call__(self, space: KnobSpace, *, seed: int, **_: object) -> Mine:
            return Mine(space, seed=seed)

    make = Make()

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: make)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])
    make_agent("mine", SPACE).save(tmp_path)

    with pytest.raises(InvalidInput, match=r"'mine' cannot load .* load\(folder, space"):
        load_agent(tmp_path, SPACE)
    monkeypatch.setattr(Make, "load", Mine.load, raising=False)
    assert isinstance(load_agent(tmp_path, SPACE), Mine)


def test_third_party_bookkeepers_are_like_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A class of that base gets its constants checked, and its policies are loaded by name."""

    class Mine(RandomSearch):
        name = "mine"

    entry = SimpleNamespace(name="mine", value="mine:make", load=lambda: Mine)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    agent = make_agent("mine", SPACE, start=2, parameters={"budget": 7})
    agent.save(tmp_path)

    assert isinstance(agent, Mine)
    assert (agent.parameters.budget, agent.start) == (7, 2)
    assert isinstance(load_agent(tmp_path, SPACE), Mine)
    with pytest.raises(InvalidInput, match="parameter speed: unknown"):
        make_agent("mine", SPACE, parameters={"speed": 1})
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match="of an unknown 'mine'"):
        load_agent(tmp_path, SPACE)


@pytest.mark.parametrize(("own", "said"), [("random", "has the name 'random'"), (None, "has no name")])
def test_a_third_party_class_is_named_as_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, own: str | None, said: str
) -> None:
    """Else its policy would be loaded as that of another agent, or not at all."""
    made = type("Mine", (RandomSearch if own else SearchAgent,), {"_propose": lambda self, level: None})
    entry = SimpleNamespace(name="mine", value="mine:Mine", load=lambda: made)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    with pytest.raises(InvalidInput, match=f'agent mine: its class mine:Mine {said}; write name = "mine"'):
        make_agent("mine", SPACE)


@pytest.mark.parametrize("name", ["rrl", "hill_climb"])
def test_a_third_party_agent_has_no_name_of_ours(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It was left out in silence, and ours was trained."""
    entry = SimpleNamespace(name=name, value="mine:Mine", load=lambda: RandomSearch)
    monkeypatch.setattr(plugin, "entry_points", lambda group: [entry])

    with pytest.raises(InvalidInput, match=f"'{name}' is one of ours, and the entry point of mine:Mine"):
        make_agent(name, SPACE)


def test_start_outside_the_space() -> None:
    """It is the number of a configuration."""
    with pytest.raises(InvalidInput, match=r"numbered from 0 to 71"):
        make_agent("random", SPACE, start=72)


def test_the_list_is_light() -> None:
    """Names are known without torch, numba or optuna."""
    code = (
        "import sys; from tuner.agents.catalogue import agent_names; agent_names(); "
        "assert not {'torch', 'numba', 'optuna'} & set(sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("name", ["rrl", "rrl_paper", "hill_climb"])
def test_a_negative_seed_is_the_callers_mistake(name: str, tmp_path: Path) -> None:
    """In making an agent and in loading one, whose policy is sound."""
    make_agent(name, SPACE).save(tmp_path)

    attempts = (partial(make_agent, name, SPACE, seed=-1), partial(load_agent, tmp_path, SPACE, seed=-1))
    for attempt in attempts:
        with pytest.raises(InvalidInput, match="seed: -1 is negative"):
            attempt()
