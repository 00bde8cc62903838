"""The agent of those who only watch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.builders import SPACE
from tuner.agents.agent import State
from tuner.agents.idle import Idle


def test_it_leaves_everything_as_it_is(tmp_path: Path) -> None:
    """Whatever it learns, and it keeps nothing."""
    agent, state = Idle(SPACE), State(level=3, configuration=7)
    agent.update(state, 9, 0.1, state)
    agent.save(tmp_path)
    agent.close()

    assert agent.select(state) == agent.best(state, np.array([9])) == 7
    assert np.isnan(agent.costs(3)).all()
    assert agent.costs(3).shape == (SPACE.size,)
    assert list(tmp_path.iterdir()) == []
