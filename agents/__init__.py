"""Learning agents: what chooses configurations and learns from what they cost.

The agents themselves load compiled kernels and are imported by module: ``tuner.agents.rrl``.
"""

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels

__all__ = ["Agent", "LoadLevels", "State"]
