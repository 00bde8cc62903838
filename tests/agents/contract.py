"""What the tests of our own agents share: the catalogue makes and loads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tuner.agents import Agent, LoadLevels
from tuner.agents.catalogue import load_agent, make_agent
from tuner.knobs import KnobSpace
from tuner.testing.agent import AgentContract, Valley


class CatalogueContract(AgentContract):
    """The contract of an agent of the catalogue."""

    name: ClassVar[str]
    parameters: ClassVar[Mapping[str, Any]] = {}

    def make(self, space: KnobSpace, seed: int) -> Agent:
        def expected(rate: float) -> np.ndarray:
            return Valley(space).costs(LoadLevels().level(rate))

        return make_agent(self.name, space, seed=seed, expected=expected, parameters=self.parameters)

    def load(self, folder: Path, space: KnobSpace, seed: int) -> Agent:
        return load_agent(folder, space, seed=seed)
