"""The Dynamic workload of RRL: periods of Poisson arrivals whose mean gap jumps from one to the next.

Section 6.1 and Fig. 12(d) of the paper show it; the numbers are those of the authors' load generator: mean
gaps of 0.07 s, 0.06 s from iteration 800 on, 0.07 s from 1300, 0.10 s from 2000 and 0.12 s from 2400, of
3,000 iterations. Here the nominal rate stands for the first gap, and the episode for the 3,000 iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tuner.workload.workload import Workload

__all__ = ["ITERATIONS", "PERIODS", "Dynamic"]

ITERATIONS = 3000
"""Length of the authors' runs."""
PERIODS = ((0, 0.07), (800, 0.06), (1300, 0.07), (2000, 0.10), (2400, 0.12))
"""First iteration of a period, and its mean gap, s."""


@dataclass(frozen=True, kw_only=True)
class Dynamic(Workload):
    """The paper's schedule, stretched over the episode; only the arrivals within a window are random."""

    name: ClassVar[str] = "dynamic"
    about: ClassVar[str] = "RRL's schedule: jumps to 117 %, 100 %, 70 % and 58 % of the nominal rate"

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002, D102
        starts = np.array([first for first, _ in PERIODS])
        gaps = np.array([gap for _, gap in PERIODS])
        iteration = np.arange(windows) * (ITERATIONS / windows)
        # Half a thousandth of an iteration: 800/3000 of 3,000 windows is window 800 in spite of rounding.
        period = np.searchsorted(starts, iteration + 5e-4, side="right") - 1
        return np.asarray(gaps[0] / gaps[period])
