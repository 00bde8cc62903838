"""The rate of recorded arrivals: when the requests of a trace came.

The whole file is stretched over the episode and its rate scaled, so that its mean is the nominal one; what is
left is how the load rises and falls.

A window of an episode shows the load of its share of the file. Where that would be fewer than 20 requests,
the count would mostly be luck, and luck comes again when arrivals are drawn: then wider pieces of the file
are counted, and the rate in between follows a straight line.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tuner.errors import InvalidInput
from tuner.workload.trace import read_send_times
from tuner.workload.workload import SETTING, Workload, middles, parameter

__all__ = ["Recorded", "gap_shape"]

FEWEST = 20
"""Requests of the trace that a piece of it holds on average, at least."""
ROUNDED = 0.1
"""Where a larger share of the requests has the time of the one before, the times may have been rounded."""
NEAR = 10
"""Steps of the rounding up to which gaps are looked at: seconds since 1970 are not exact enough for longer
ones in ms."""
OFF = 0.05
"""How far a gap of rounded times may be from a whole number of steps, in steps."""


@dataclass(frozen=True, kw_only=True)
class Recorded(Workload):
    """The load of a recorded trace; nothing about its rates is random.

    The file is that of ``arrival: trace:FILE`` of a scenario (:class:`tuner.workload.trace.Trace`).

    Raises:
        InvalidInput: The file cannot be read or a line is not as it should be; names the line.
    """

    name: ClassVar[str] = "trace"
    about: ClassVar[str] = "recorded arrivals: a time in each line, or in the first column of a CSV"
    takes_file: ClassVar[bool] = True

    file: Path
    """The trace."""
    burstiness: float = parameter(
        0.0, "shape of the gamma distributed gaps; 0: as in the trace, slow changes left out", least=0.001
    )
    _seconds: np.ndarray = dataclasses.field(init=False, compare=False, repr=False)
    """When its requests came, from 0 on.   # (n,) s"""

    def __post_init__(self) -> None:
        setting = f"{SETTING} {self.name}:{self.file}"
        seconds = self._read(setting)
        if not seconds[-1] > 0:
            raise InvalidInput(setting, "needs requests at two different times at least")
        seconds = _unrounded(seconds)
        object.__setattr__(self, "_seconds", seconds)
        if self.burstiness == 0:
            object.__setattr__(self, "burstiness", gap_shape(np.diff(seconds)))
        super().__post_init__()

    def _read(self, setting: str) -> np.ndarray:
        """Return when the requests came, s from 0 on."""
        return read_send_times(self.file, setting)

    def __str__(self) -> str:
        return f"{self.name}:{self.file},burstiness={self.burstiness!r}"

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002, D102
        pieces = min(windows, max(self._seconds.size // FEWEST, 1))
        counts, _ = np.histogram(self._seconds, pieces, range=(0.0, float(self._seconds[-1])))
        rates = np.interp(middles(windows), middles(pieces), counts)
        return np.asarray(rates / rates.mean())


def _unrounded(seconds: np.ndarray) -> np.ndarray:
    """Return times as they may have been before they were rounded: anywhere within the step of the rounding.

    Else requests would seem to come in a burst at each full second of a log that has no finer times, and
    windows shorter than a second would have all of its requests or none. Times between which there are not
    whole steps stay as they are: requests with the same one did come together.

    Args:
        seconds: Not decreasing, two of them different at least.   # (n,) s

    Returns:
        Seconds from 0 on.   # (n,)
    """
    gaps = np.diff(seconds)
    if np.mean(gaps == 0) <= ROUNDED:
        return seconds
    step = gaps[gaps > 0].min()
    steps = gaps[gaps < NEAR * step] / step
    if np.abs(steps - np.round(steps)).max() > OFF:
        return seconds
    found = np.sort(seconds + step * np.random.default_rng(0).random(seconds.size))
    return np.asarray(found - found[0])


def gap_shape(gaps: np.ndarray) -> float:
    """Return the shape of the gamma distribution that gaps locally follow, 0.01 to 100.

    From the local variation Lv of Shinomoto et al. (Neural Computation 15, 2003), which compares each gap
    with the next one only and therefore does not mistake a changing rate for bursts: Lv = 3 / (2 shape + 1).

    Args:
        gaps: From one request to the next.   # (n,) s
    """
    first, second = gaps[:-1], gaps[1:]
    known = first + second > 0
    if not known.any():
        return 1.0
    difference = (first[known] - second[known]) / (first[known] + second[known])
    variation = 3 * float(np.mean(difference**2))
    return float(np.clip((3 / max(variation, 1e-9) - 1) / 2, 0.01, 100))
