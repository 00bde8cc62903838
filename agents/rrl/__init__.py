"""Region-based reinforcement learning with its default perception; :mod:`agent` is where to begin reading."""

from tuner.agents.rrl.agent import RRL
from tuner.agents.rrl.parameters import RRLParameters

__all__ = ["RRL", "RRLParameters"]
