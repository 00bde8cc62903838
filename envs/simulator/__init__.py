"""A simulated Triton: compiled dynamic batcher, server models and virtual clients."""

from tuner.envs.simulator.backend import connect

__all__ = ["connect"]
