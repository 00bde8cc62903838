"""Draws what an environment showed last as an array of pixels, with numpy alone.

Above, a column for each of the last windows: as high as the latency over the SLO, on a logarithmic scale,
blue where it kept the SLO and orange where it broke it; the line is the SLO. Below, a bar for each knob.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["WINDOWS", "draw_picture"]

WINDOWS = 48
"""Windows that are shown."""
WIDTH, HEIGHT = 240, 160
COLUMN = WIDTH // WINDOWS
CHART = 110
"""Height of the columns' part, pixels."""
LOWEST, HIGHEST = 0.1, 10.0
"""Latencies over the SLO at its bottom and its top."""
PAPER, INK, FRAME = (255, 255, 255), (40, 40, 40), (225, 225, 225)
KEPT, BROKEN = (0, 114, 178), (213, 94, 0)
"""Blue and vermilion of Okabe and Ito, which colour-blind people can tell apart."""


def draw_picture(ratios: Sequence[float], steps: Sequence[float]) -> np.ndarray:
    """Return the picture.

    Args:
        ratios: The latency over the SLO in the last windows, the oldest first; NaN where it is not known.
        steps: Where each knob stands on its grid, 0 to 1.

    Returns:
        Red, green and blue.   # (160, 240, 3) uint8
    """
    pixels = np.full((HEIGHT, WIDTH, 3), PAPER, np.uint8)
    for number, ratio in enumerate(ratios[-WINDOWS:]):
        if not math.isnan(ratio):
            top = CHART - max(_height(ratio), 1)
            left = number * COLUMN
            pixels[top:CHART, left : left + COLUMN - 1] = KEPT if ratio <= 1 else BROKEN
    pixels[CHART - _height(1.0)] = INK
    bar = (HEIGHT - CHART) // max(len(steps), 1)
    for number, step in enumerate(steps):
        top = CHART + number * bar + 2
        pixels[top : top + bar - 2] = FRAME
        pixels[top : top + bar - 2, : max(round(step * WIDTH), 2)] = KEPT
    return pixels


def _height(ratio: float) -> int:
    """Return the height of a column, pixels."""
    within = min(max(ratio, LOWEST), HIGHEST)
    return round(math.log(within / LOWEST) / math.log(HIGHEST / LOWEST) * (CHART - 1))
