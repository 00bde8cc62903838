"""What a server itself reports of the GPUs that a model is on: also of one on another machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.measurement import NOT_KNOWN

__all__ = ["GpuUse", "gpu_figures"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuUse:
    """One GPU at one moment; NaN for what the server does not report."""

    uuid: str
    """The driver's name of it."""
    share: float = NOT_KNOWN
    """Share of its time in use, by whomever, over the server's own interval, 0..1."""
    memory: float = NOT_KNOWN
    """Bytes in use."""
    power: float = NOT_KNOWN
    """W."""
    energy: float = NOT_KNOWN
    """Energy used since the server or the driver started, J."""


def gpu_figures(readings: Sequence[Sequence[GpuUse]], seconds: float) -> dict[str, float]:
    """Return the figures of a window, by the fields of a measurement; nothing without a GPU.

    Args:
        readings: Each read at one moment: at the beginning of the window, within it and at its end.
        seconds: Length of the window.
    """
    if not readings or not readings[-1]:
        return {}
    within = readings[1:] or readings
    first, last = readings[0], readings[-1]
    power = _over(within, lambda gpus: sum(gpu.power for gpu in gpus))
    if math.isnan(power) and [gpu.uuid for gpu in first] == [gpu.uuid for gpu in last] and seconds > 0:
        power = (sum(gpu.energy for gpu in last) - sum(gpu.energy for gpu in first)) / seconds
    return {
        "gpu": _over(within, lambda gpus: sum(gpu.share for gpu in gpus) / len(gpus)),
        "gpu_memory": sum(gpu.memory for gpu in last),
        "gpu_power": power,
    }


def _over(readings: Sequence[Sequence[GpuUse]], figure: Callable[[Sequence[GpuUse]], float]) -> float:
    """The mean of a figure over the readings in which it is known; NaN if it is in none."""
    found = [figure(gpus) for gpus in readings if gpus]
    known = [value for value in found if not math.isnan(value)]
    return sum(known) / len(known) if known else NOT_KNOWN
