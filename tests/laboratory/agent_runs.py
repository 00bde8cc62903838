"""Runs for tests: made up, or of small environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.laboratory.agent_run import SHOWN, AgentRun, RunSpec
from tuner.objective import Slo

SMALL: dict[str, Any] = {
    "env": "tuner/TritonCPU-v0",
    "arguments": {"window": 0.5, "grids": {"max_batch_size": [1, 4, 16], "instances": [1, 2]}},
    "rates": (100.0,),
    "windows": 12,
}
"""A run of half-second windows on six times six configurations."""


def made_run(*, agent: str = "rrl", seed: int = 0, **arrays: np.ndarray) -> AgentRun:
    """Make up a run; what is not given is 1 in every window."""
    n = len(next(iter(arrays.values())))
    whole = {name: np.ones(n) for name in {*AgentRun._fields, *SHOWN} - {"spec", "slo", "shown"}}
    whole |= {"learned": np.ones(n, dtype=bool)} | arrays
    shown = {name: whole.pop(name) for name in SHOWN}
    spec = RunSpec(env="tuner/TritonCPU-v0", agent=agent, seed=seed, windows=n)
    return AgentRun(spec=spec, slo=Slo(statistic="p95", latency=0.03), shown=shown, **whole)
