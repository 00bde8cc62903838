"""Contracts that adapters and environments are held to; they ship so that third parties can use them, too."""

from tuner.testing.backend import BackendContract
from tuner.testing.environment import EnvironmentContract

__all__ = ["BackendContract", "EnvironmentContract"]
