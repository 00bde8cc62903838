"""One server of a batched simulator as a backend: every window of an episode begins on an empty server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.adapters import ApplyReport, Counters, Description
from tuner.envs.simulator.batched import BatchedSimulator, WindowArrays
from tuner.envs.simulator.batched_triton import BatchedTriton
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TFServingGPU
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import NOT_KNOWN, QUANTITIES, Measurement
from tuner.profile import BatchingProfile

__all__ = ["BatchedModel", "BatchedServer", "measure_servers", "row_measurement"]

STEP = 0x9E3779B97F4A7C15
"""Between the seeds of windows: odd, so that no two windows of an episode share one."""

SIMULATED = tuple(quantity for quantity in QUANTITIES if quantity.name in WindowArrays._fields)
"""Quantities that the batched simulator measures."""

BatchedModel = BatchedTriton | TFServingCPU | TFServingGPU
"""A server model that the batched simulator can simulate."""


class BatchedServer:
    """One server of a batched simulator, during one episode.

    It begins with the default configuration. Windows are numbered from 0, the one that a reset measures.

    Args:
        model: The server that is simulated.
        space: Its knobs.
        rates: Offered load of each step, requests/s; window 0 has that of the first step.   # (steps,)
        seed: Of the episode.
    """

    def __init__(self, model: BatchedModel, space: KnobSpace, rates: np.ndarray, seed: int) -> None:
        self.space = space
        self.number = space.encode(space.default)
        """The number of the configuration."""
        self.window = 0
        """The number of the next window."""
        self.offered = float(rates[0])
        """The load of the last window, requests/s; that of the first one before it."""
        self._model = model
        self._rates = rates
        self._seed = seed
        self._warm_up = model.traffic().warm_up
        self._configuration = space.default

    @property
    def rate(self) -> float:
        """The load of the next window, requests/s; after the last step it stays the same."""
        return float(self._rates[min(max(self.window - 1, 0), self._rates.size - 1)])

    @property
    def seed(self) -> int:
        """The seed of the next window: it depends on the episode's seed and the window's number alone."""
        return (self._seed + self.window * STEP) % 2**64

    def take(self, arrays: WindowArrays, row: int) -> Measurement:
        """Return a row as the measurement of the window that came next, and go on to the one after it."""
        self.offered = self.rate
        begin = self._warm_up + self.window * (self._warm_up + float(arrays.seconds[row]))
        self.window += 1
        return row_measurement(arrays, row, self._configuration, begin)

    def skip(self, windows: int) -> None:
        """Go on as if a number of windows, at least one, had been measured."""
        self.window += windows - 1
        self.offered = self.rate
        self.window += 1

    def describe(self) -> Description:
        """Return who this is."""
        return Description(
            target=f"sim://{self._model.name}",
            server=f"simulated-{self._model.kind}",
            version="1",
            model=self._model.name,
            writable=True,
            quantiles=False,
            notes=("simulated: time is virtual, and every window begins on an empty server",),
        )

    def current(self) -> Configuration:
        """Return what the next window will be measured with."""
        return self._configuration

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the configuration.

        Raises:
            InvalidInput: It is not one of the space.
        """
        self.number = self.space.encode(configuration)
        before, after = map(self.space.effective, (self._configuration, configuration))
        cost = self.space.apply_cost(before, after)
        changed = cost is not ApplyCost.FREE
        self._configuration = configuration
        seconds = self._model.restart_seconds if changed else 0.0
        return ApplyReport(
            configuration=configuration, changed=changed, cost=cost, seconds=seconds, settle=0.0
        )

    def counters(self) -> Counters:
        """Not to be had: nothing carries over from window to window.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("measure_servers measures the servers of a batched simulator")

    def profile(self) -> BatchingProfile | None:
        """There is none."""
        return None

    def close(self) -> None:
        """Nothing is held open."""


def measure_servers(
    simulator: BatchedSimulator, servers: Sequence[BatchedServer], seconds: float
) -> list[Measurement]:
    """Measure the next window of several servers at once."""
    arrays = simulator.step(
        np.array([server.number for server in servers]),
        np.array([server.rate for server in servers]),
        np.array([server.seed for server in servers], np.uint64),
        seconds,
    )
    return [server.take(arrays, row) for row, server in enumerate(servers)]


def row_measurement(
    arrays: WindowArrays, row: int, configuration: Configuration, begin: float = 0.0
) -> Measurement:
    """Return one row as a measurement of a window that began at a time, s."""
    figures: dict[str, Any] = {
        quantity.field: quantity.kind(_known(getattr(arrays, quantity.name)[row])) for quantity in SIMULATED
    }
    return Measurement(
        start=begin,
        end=begin + float(arrays.seconds[row]),
        configuration=configuration,
        quantiles_from="client",
        foreign_cpu=0.0,
        **figures,
    )


def _known(value: float) -> float:
    """Return a number, or the one NaN that stands for an unknown one: measurements can be compared."""
    return NOT_KNOWN if value != value else float(value)  # noqa: PLR0124 - NaN alone differs from itself
