"""Exact costs of all configurations under a load: means over many simulated windows, kept on disk.

At a low load some windows have no request; they have no cost, and the mean is over the others.
"""

from __future__ import annotations

import hashlib
import io
import math
from contextlib import suppress
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from tuner._jit import kernel_digest
from tuner.envs.batched_server import row_measurement
from tuner.envs.simulator.batched import BatchedSimulator, WindowArrays
from tuner.errors import InvalidInput
from tuner.files.storage import replace_file
from tuner.knobs import KnobSpace
from tuner.objective import Objective

__all__ = ["ExactCosts", "every_configuration", "rounded_rate"]

GRID = math.log(1.05)
"""Loads are rounded to steps of 5 %, so that a changing load needs few tables."""

WINDOWS = 16
"""Windows of every configuration."""


class ExactCosts:
    """Exact costs of configurations in a batched simulator, each load computed on first use.

    Args:
        simulator: Simulates the server.
        space: The server's knobs.
        objective: What is minimised. Changes of the configuration cost nothing here.
        seconds: Length of a window. Under overload, where no latency is steady, the cost grows with it.
    """

    def __init__(
        self, simulator: BatchedSimulator, space: KnobSpace, objective: Objective, seconds: float
    ) -> None:
        self._simulator, self._space, self._objective, self._seconds = simulator, space, objective, seconds
        self._known: dict[float, np.ndarray] = {}

    def at(self, rate: float) -> np.ndarray:
        """Return the costs at an offered load, requests/s, rounded to a grid of 5 %.   # (size,).

        They are NaN where no window of a configuration has a request.

        Raises:
            InvalidInput: It is not positive.
        """
        if not 0 < rate < math.inf:
            raise InvalidInput("rate", f"{rate} is not a positive number of requests/s")
        rounded = rounded_rate(rate)
        if rounded not in self._known:
            arrays = every_configuration(self._simulator, rounded, self._seconds, WINDOWS)
            any_one = self._space.default  # no cost depends on which configuration it is
            costs = [
                self._objective.cost(row_measurement(arrays, row, any_one)) for row in range(arrays.rate.size)
            ]
            self._known[rounded] = _mean_known(np.array(costs).reshape(WINDOWS, self._simulator.size))
        return self._known[rounded].copy()


def rounded_rate(rate: float) -> float:
    """Return the closest rate of the grid, requests/s."""
    return math.exp(round(math.log(rate) / GRID) * GRID)


def every_configuration(
    simulator: BatchedSimulator, rate: float, seconds: float, windows: int
) -> WindowArrays:
    """Measure every configuration in some windows, the same arrivals for all.

    The result is read from the cache folder if it was computed before, by whatever process.

    Args:
        simulator: Simulates the server.
        rate: Offered load, requests/s.
        seconds: Length of a window.
        windows: How many.

    Returns:
        The measurements; row ``w * simulator.size + c`` is window w of configuration c.
    """
    file = user_cache_path("servetune") / "costs" / f"{_key(simulator, rate, seconds, windows)}.npy"
    with suppress(OSError, ValueError, EOFError):  # not there, or damaged
        return WindowArrays(*np.load(file, allow_pickle=False))
    seeds = np.repeat(np.arange(windows, dtype=np.uint64), simulator.size)
    arrays = simulator.step(
        np.tile(np.arange(simulator.size), windows), np.full(seeds.size, rate), seeds, seconds
    )
    with suppress(OSError):  # a cache that cannot be written is no reason to fail
        _save(file, np.stack([array.astype(np.float64) for array in arrays]))
    return arrays


def _mean_known(costs: np.ndarray) -> np.ndarray:
    """Return the mean over the windows whose cost is known, NaN where none is.   # (size,).

    Args:
        costs: NaN where not known.   # (windows, size)
    """
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, as wanted; np.nanmean warns of it
        return np.asarray(np.nansum(costs, axis=0) / np.count_nonzero(~np.isnan(costs), axis=0))


def _key(simulator: BatchedSimulator, rate: float, seconds: float, windows: int) -> str:
    """Name everything that the measurements depend on."""
    digest = hashlib.sha256(
        f"{kernel_digest()} {simulator.traffic!r} {rate!r} {seconds!r} {windows}".encode()
    )
    for array in simulator.plans:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _save(file: Path, table: np.ndarray) -> None:
    """Write a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.save(content, table, allow_pickle=False)
    replace_file(file, content.getvalue())
