"""Simulated windows of every configuration at a load, kept on disk: exact costs are computed from them."""

from __future__ import annotations

import hashlib
import math
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from tuner._jit import kernel_digest
from tuner.envs.simulator.rack import Rack, WindowArrays

__all__ = ["every_configuration", "rounded_rate"]

GRID = math.log(1.05)
"""Loads are rounded to steps of 5 %, so that a changing load asks for few tables."""


def rounded_rate(rate: float) -> float:
    """Return the closest rate of the grid, requests/s."""
    return math.exp(round(math.log(rate) / GRID) * GRID)


def every_configuration(rack: Rack, rate: float, seconds: float, windows: int) -> WindowArrays:
    """Measure every configuration in some windows, the same arrivals for all.

    The result is read from the cache folder if it was computed before, by whatever process.

    Args:
        rack: The servers.
        rate: Offered load, requests/s.
        seconds: Length of a window.
        windows: How many.

    Returns:
        The measurements; row ``w * rack.size + c`` is window w of configuration c.
    """
    file = user_cache_path("servetune") / "costs" / f"{_key(rack, rate, seconds, windows)}.npy"
    with suppress(OSError, ValueError):  # not there, or damaged
        return WindowArrays(*np.load(file, allow_pickle=False))
    seeds = np.repeat(np.arange(windows, dtype=np.uint64), rack.size)
    arrays = rack.step(np.tile(np.arange(rack.size), windows), np.full(seeds.size, rate), seeds, seconds)
    with suppress(OSError):  # a cache that cannot be written is no reason to fail
        _save(file, np.stack([array.astype(np.float64) for array in arrays]))
    return arrays


def _key(rack: Rack, rate: float, seconds: float, windows: int) -> str:
    """Name everything that the measurements depend on."""
    digest = hashlib.sha256(f"{kernel_digest()} {rack.traffic!r} {rate!r} {seconds!r} {windows}".encode())
    for array in rack.plans:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _save(file: Path, table: np.ndarray) -> None:
    """Write a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with temporary.open("wb") as target:
        np.save(target, table, allow_pickle=False)
    temporary.replace(file)
