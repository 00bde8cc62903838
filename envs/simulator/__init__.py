"""A simulated Triton: compiled dynamic batcher, server models and virtual clients."""

from tuner.envs.simulator.backend import SimulatedTriton, connect, triton_space
from tuner.envs.simulator.calibration import calibrate
from tuner.envs.simulator.server import ServerModel
from tuner.workload.load import RateSchedule

__all__ = ["RateSchedule", "ServerModel", "SimulatedTriton", "calibrate", "connect", "triton_space"]
