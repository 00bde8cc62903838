"""Learning agents: they choose configurations and learn from what these cost.

This package holds the contract. The agents load compiled kernels and are imported by module:
``tuner.agents.rrl``. :mod:`~tuner.agents.catalogue` makes them by name.
"""

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels

__all__ = ["Agent", "LoadLevels", "State"]
