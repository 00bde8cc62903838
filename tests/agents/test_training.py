"""Running agents in environments."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.agents.bed import Bandit
from tuner.agents import State
from tuner.agents.rrl import RRL
from tuner.agents.training import Callbacks, learn
from tuner.knobs import Knob, KnobSpace

LINE = KnobSpace([Knob(name="max_batch_size", grid=(1, 2, 4, 8, 16), default=1)])


class Recorder(RRL):
    """Tries one configuration after the other and notes what it observes."""

    def __init__(self) -> None:
        super().__init__(LINE, synchronous=True)
        self.updates: list[tuple[int, int, float]] = []
        self.states: list[State] = []

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        self.states.append(state)
        return len(self.states) % 5

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        self.updates.append((state.level, configuration, cost))


def test_bandit_is_solved() -> None:
    """In 40 windows RRL finds the best of five configurations."""
    agent = RRL(LINE, seed=1, synchronous=True)

    learn(Bandit(), agent, 40, seed=1)

    assert agent.best(State(level=3, configuration=0)) == 2


def test_disturbed_and_unmeasured_windows_are_not_learned_from() -> None:
    """Windows 2 and 3 of the bandit; they are in the history all the same."""
    agent = Recorder()

    history = learn(Bandit(), agent, 5, seed=0)

    assert [window.learned for window in history] == [True, False, False, True, True]
    assert math.isnan(history[2].cost)
    assert [c for _, c, _ in agent.updates] == [1, 4, 0]
    assert all(level == 3 and cost > 0 for level, _, cost in agent.updates)


def test_episodes_follow_each_other() -> None:
    """A truncated episode is followed by a reset, but not after the last window; progress sees each."""
    env, seen = Bandit(episode_windows=4), []

    learn(env, Recorder(), 8, callbacks=Callbacks(progress=lambda: seen.append(1)))

    assert env.resets == 2
    assert len(seen) == 8


def test_agent_is_told_the_configuration_in_force() -> None:
    """After a reset the start, then what was chosen before."""
    agent = Recorder()

    learn(Bandit(episode_windows=2), agent, 4, start=3)

    assert [state.configuration for state in agent.states] == [3, 1, 3, 3]


@pytest.mark.parametrize(
    "more",
    [{"error": "gone"}, {"measurement": SimpleNamespace(arrival_rate=0.0)}, {"disturbed": ("reload",)}],
)
def test_windows_without_meaning_teach_nothing(more: dict[str, Any]) -> None:
    """A failed backend, a window in which nothing was asked, a disturbed one."""

    class Odd(Bandit):
        def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, truncated, info | more

    agent = Recorder()

    learn(Odd(), agent, 1)

    assert agent.updates == []


def test_configuration_is_read_from_the_environment() -> None:
    """Serving environments tell what the server runs as a configuration of their space."""

    class Telling(Bandit):
        space = LINE

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            observation, info = super().reset(seed=seed)
            return observation, info | {"configuration": LINE.decode(4)}

    agent = Recorder()

    learn(Telling(), agent, 1)

    assert agent.states[0] == State(level=3, configuration=4)


@pytest.mark.parametrize(("disturbed", "seen"), [((), {"rate": 7.0}), (("reload",), None)])
def test_a_disturbed_window_at_the_beginning_teaches_nothing_either(
    disturbed: tuple[str, ...], seen: dict[str, float] | None
) -> None:
    """An agent takes in what windows show beside their cost; of later ones it is shown the undisturbed."""
    measured = SimpleNamespace(arrival_rate=7.0, figures=lambda: {"rate": 7.0})

    class Measuring(Bandit):
        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            observation, info = super().reset(seed=seed)
            return observation, info | {"measurement": measured, "disturbed": disturbed}

    agent = Recorder()

    learn(Measuring(), agent, 1)

    assert agent.states[0].seen == seen
