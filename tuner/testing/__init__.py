"""Contracts that adapters, agents and environments are held to; they ship for third parties, too."""

from tuner.testing.agent import AgentContract
from tuner.testing.backend import BackendContract
from tuner.testing.environment import EnvironmentContract

__all__ = ["AgentContract", "BackendContract", "EnvironmentContract"]
