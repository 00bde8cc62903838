"""The oracle: which costs it goes by."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.agents.test_policy_file import rewrite
from tuner.agents import LoadLevels, State
from tuner.agents.rivals.oracle import OracleAgent
from tuner.knobs import Knob, KnobSpace

SPACE = KnobSpace([Knob(name="max_batch_size", grid=(1, 2), default=1)])
LEVEL = 26
"""Its middle is 331 requests/s."""


def expected(rate: float) -> np.ndarray:
    """The first is the best up to 315 requests/s, the second beyond."""
    return np.array([1.0, 2.0] if rate < 315 else [2.0, 1.0])


@pytest.mark.parametrize(
    ("rate", "best"), [(300.0, 0), (330.0, 1), (None, 1), (0.0, 1), (math.nan, 1), (math.inf, 1)]
)
def test_it_chooses_for_the_rate_of_the_window(rate: float | None, best: int) -> None:
    """Not for the middle of its level, which is all that is known where the rate is not."""
    agent = OracleAgent(SPACE, expected=expected)

    assert agent.select(State(level=LEVEL, configuration=0, rate=rate)) == best
    assert agent.costs(LEVEL).tolist() == [2.0, 1.0]


def test_it_asks_once_for_rates_that_are_nearly_the_same() -> None:
    """A table of exact costs takes seconds; within 5 % one stands for all."""
    asked: list[float] = []

    def noted(rate: float) -> np.ndarray:
        asked.append(rate)
        return expected(rate)

    agent = OracleAgent(SPACE, expected=noted)
    for rate in (299.0, 301.0, 303.0, 300.0, 400.0):
        agent.best(State(level=LEVEL, configuration=0, rate=rate))

    assert asked == pytest.approx([1.05**117, 1.05**123])


def test_a_saved_one_knows_the_rates_that_it_was_asked_for(tmp_path: Path) -> None:
    """Others are taken to be like the nearest. An older one knows the middles of levels."""
    agent = OracleAgent(SPACE, expected=expected)
    for rate in (300.0, 330.0):
        agent.best(State(level=LEVEL, configuration=0, rate=rate))
    agent.save(tmp_path / "new")
    loaded = OracleAgent.load(tmp_path / "new", SPACE)
    choices = [loaded.best(State(level=LEVEL, configuration=0, rate=rate)) for rate in (90.0, 300.0, 900.0)]

    agent.save(tmp_path / "old")
    rewrite(tmp_path / "old", levels=np.array([LEVEL - 2, LEVEL + 1000]), steps=None)
    old = OracleAgent.load(tmp_path / "old", SPACE)
    middles = [old.best(State(level=level, configuration=0)) for level in (LEVEL - 2, LEVEL)]

    assert choices == [0, 0, 1]
    assert middles == [0, 1]
    assert loaded.levels == old.levels == LoadLevels()
