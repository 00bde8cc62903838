"""A simulated Triton: compiled dynamic batcher, server models and virtual clients."""

from tuner.envs.simulator.backend import SimulatedTriton, connect, triton_space
from tuner.envs.simulator.calibration import calibrate
from tuner.envs.simulator.long_window import kernel_speed, simulate
from tuner.envs.simulator.server import MODELS, ServerModel
from tuner.envs.simulator.world import World
from tuner.workload.load import ArrivalStream, RateSchedule, parse_schedule

__all__ = [
    "MODELS",
    "ArrivalStream",
    "RateSchedule",
    "ServerModel",
    "SimulatedTriton",
    "World",
    "calibrate",
    "connect",
    "kernel_speed",
    "parse_schedule",
    "simulate",
    "triton_space",
]
