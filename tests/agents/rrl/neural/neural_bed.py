"""A simulated server for the tests of the neural estimator: what is known of it, and a window of it."""

from __future__ import annotations

import math

import numpy as np

from tuner.agents import State
from tuner.agents.rrl.neural.knowledge import Reference, ServerKnowledge, complete_profile
from tuner.envs.simulator.backend import triton_space
from tuner.envs.simulator.server import ServerModel
from tuner.measurement import QUANTITIES
from tuner.objective import Objective, Slo

SERVER = ServerModel()
SPACE = triton_space(SERVER)
OBJECTIVE = Objective(slo=Slo(statistic="p95", latency=0.03), cores=2.0)
RATE = 140.0


def knowledge(scale: float = 1.0, *, watched: bool = True) -> ServerKnowledge:
    """Return what is known of a server whose every time is as long, and whose load as low."""
    seconds, doubt = complete_profile({1.0: (0.005 * scale, 0.1), 8.0: (0.007 * scale, 0.1)})
    reference = Reference(
        configuration=SPACE.encode(SPACE.default),
        rate=RATE / scale,
        latencies=np.array([0.012, 0.010, 0.025, 0.03]) * scale,
        use=0.8,
        inside=np.array([0.005 * scale, 0.006 * scale, 1.0]),
    )
    return ServerKnowledge(cores=2.0, seconds=seconds, doubt=doubt, reference=reference if watched else None)


def seen(**values: float) -> dict[str, float]:
    """Return what a window showed: one of the default configuration that kept the SLO."""
    usual = {
        "requests": 700.0, "rate": RATE, "mean": 0.012, "p50": 0.010, "p95": 0.025, "p99": 0.03,
        "compute_mean": 0.005, "queue_mean": 0.006, "batch_mean": 1.0, "cpu": 0.8,
    }  # fmt: skip
    return {**{quantity.name: math.nan for quantity in QUANTITIES}, **usual, **values}


def state(**values: float) -> State:
    return State(level=22, configuration=SPACE.encode(SPACE.default), rate=RATE, seen=seen(**values))
