"""The model of a simulated Triton: how long a batch takes, what shares the cores, what requests cost.

The defaults describe the demo's model (a wide MLP, one thread per instance) in Triton 2.51 on two cores
which the load generator shares: l(b) as measured in onnxruntime plus 0.8 ms that the Python backend adds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tuner.envs.simulator.model_file import ModelFile
from tuner.errors import InvalidInput

__all__ = ["MODELS", "ServerModel"]

MLP_TABLE = {1: 0.0050, 2: 0.0055, 4: 0.0061, 8: 0.0070, 16: 0.0125, 32: 0.0193}


@dataclass(frozen=True, kw_only=True)
class ServerModel(ModelFile):
    """What a simulated server is like. Seconds, cores, and shares of 1.

    Raises:
        InvalidInput: A value is out of its range.
    """

    kind: Literal["triton"] = "triton"
    """What server it describes."""
    name: str = "mlp"
    """The model's name."""
    table: Mapping[int, float] = field(default_factory=lambda: dict(MLP_TABLE))
    """Batch size -> execution time of one undisturbed instance, s; in between and beyond it is interpolated
    linearly. Empty: ``alpha * b + beta``."""
    alpha: float = 0.0
    """Seconds more per request in the batch; used without a table."""
    beta: float = 0.0
    """Seconds per execution; used without a table."""
    noise: float = 0.3
    """Sigma of the lognormal factor (of mean 1) on each execution."""
    gap: float = 0.00015
    """Seconds an instance is taken per batch beside the execution it reports."""
    closing: float = 0.5
    """Share of batches that take no more requests once their delay has run out, while they wait for an
    instance: Triton 2.51 did so in 41 of 84 trials, whenever the next request came. TensorFlow Serving: 0."""
    contention: float = 0.15
    """Share by which executions slow down per further busy core, below the number of cores already."""
    cores: float = 2.0
    """Cores of the machine; beyond them time is shared."""
    threads: float = 1.0
    """Cores that one executing instance keeps busy (intra-op threads)."""
    overhead: float = 0.001
    """Mean seconds per request outside queue and execution: network, gRPC, the client."""
    overhead_noise: float = 0.4
    """Sigma of the lognormal factor (of mean 1) on it."""
    cpu_per_request: float = 0.00035
    """Core-seconds of the server per request, outside the execution."""
    cpu_per_batch: float = 0.0002
    """Core-seconds of the server per batch, outside the execution."""
    client_cpu_per_request: float = 0.0006
    """Core-seconds of the load generator per request, if it runs on the same cores, else 0."""
    reload_seconds: float = 0.3
    """How long a reload takes."""
    settle_seconds: float = 1.5
    """How long the old instances live on."""
    reload_cores: float = 1.0
    """Cores in use by loading while a change takes place."""

    def __post_init__(self) -> None:
        self.check_numbers(positive=("cores", "threads"), shares=("closing",))
        if not self.table and self.alpha + self.beta == 0:
            raise InvalidInput(
                "server table", "there is neither a table nor alpha and beta", "give one of them"
            )
        if any(size < 1 or not 0 < value < math.inf for size, value in self.table.items()):
            shown = ", ".join(f"{size}: {value:g}" for size, value in self.table.items())
            raise InvalidInput("server table", f"{shown} must map sizes >= 1 to positive seconds")

    def execution(self, batch: int) -> float:
        """Return how long one batch takes on an undisturbed server, s."""
        return float(self.profile_table(batch)[batch])

    def profile_table(self, largest: int) -> np.ndarray:
        """Return l(b) for every batch size up to ``largest``; never falling.   # (largest+1,) s; [0] is 0."""
        batches = np.arange(largest + 1, dtype=float)
        if not self.table:
            latency = self.alpha * batches + self.beta
        else:
            sizes = np.array(sorted(self.table), dtype=float)
            latency = np.interp(batches, sizes, [self.table[int(size)] for size in sizes])
            last, slope = sizes[-1], self._last_slope(sizes)
            latency += np.maximum(batches - last, 0.0) * slope
        latency[0] = 0.0
        return np.maximum.accumulate(latency)

    def _last_slope(self, sizes: np.ndarray) -> float:
        if sizes.size < 2:
            return self.alpha
        low, high = int(sizes[-2]), int(sizes[-1])
        return max((self.table[high] - self.table[low]) / (high - low), 0.0)


MODELS: Mapping[str, ServerModel] = {"mlp": ServerModel()}
"""Servers known by name, for ``sim://NAME``."""
