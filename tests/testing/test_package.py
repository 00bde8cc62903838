"""What the package of contracts does for all of them."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from tuner.agents import Agent, State
from tuner.knobs import KnobSpace
from tuner.testing.agent import AgentContract, Valley, make_space


class Last:
    """Chooses the last configuration, whatever is allowed."""

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        return 59

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learns nothing."""


class LastContract(AgentContract):
    def make(self, space: KnobSpace, seed: int) -> Agent:
        return cast(Agent, Last())


def test_broken_contracts_show_the_values() -> None:
    """The author of an agent sees what it chose, and what was allowed."""
    with pytest.raises(AssertionError, match=r"assert 59 in array\(\[ ?0"):
        LastContract().test_keeps_to_the_allowed(Valley(make_space()), step=1.0)
