"""The randomness of execution: numbers drawn ahead, in blocks, for the engine to use one per batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tuner.cluster.execution import Execution

__all__ = ["Draw", "DrawDelays", "Draws", "lognormal_factor"]

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Draws the given number of values; an array of one value says that all are the same."""
DrawDelays = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Draws control, data per request, and response, s."""

BLOCK = 1 << 14
"""Numbers drawn at a time. Always as many, so that results do not depend on when they are drawn."""

_FACTORS, _DELAYS = 1, 2  # streams that share the seed


class Draws:
    """Fills the rings of an :class:`Execution` in the beginning, and again when half of them is used up.

    Args:
        seed: Of the whole simulation.
        factor: Draws factors on the execution time.
        delays: Draws the network's delays.
    """

    def __init__(self, seed: int, factor: Draw, delays: DrawDelays) -> None:
        self._factor = factor
        self._delays = delays
        self._factors_from = np.random.default_rng((seed, _FACTORS))
        self._delays_from = np.random.default_rng((seed, _DELAYS))

    def begin(self, execution: Execution) -> Execution:
        """Return an execution that uses these numbers; shares the other arrays."""
        rings = []
        random = False
        for first, second in zip(self._block(), self._block(), strict=True):
            random = random or first.size > 1
            rings.append(np.concatenate((first, second)) if first.size > 1 else first)
        execution.clock[0].filled = 2 * BLOCK if random else np.iinfo(np.int64).max
        factor, control, data, response = rings
        return execution._replace(factor=factor, control=control, data=data, response=response)

    def refill(self, execution: Execution) -> None:
        """Draw numbers in place of used ones; ``execution`` is modified in place."""
        clock = execution.clock[0]
        while clock.filled - clock.drawn <= BLOCK:
            half = slice(clock.filled % (2 * BLOCK), clock.filled % (2 * BLOCK) + BLOCK)
            for ring, numbers in zip(execution[-4:], self._block(), strict=True):
                if ring.size > 1:
                    ring[half] = numbers
            clock.filled += BLOCK

    def _block(self) -> tuple[np.ndarray, ...]:
        drawn = (self._factor(self._factors_from, BLOCK), *self._delays(self._delays_from, BLOCK))
        return tuple(np.ascontiguousarray(numbers, np.float64) for numbers in drawn)


def lognormal_factor(deviation: float) -> Draw:
    """Return how to draw factors of mean 1 and a standard deviation, lognormal; always 1 if that is 0."""
    variance = math.log1p(deviation**2)

    def draw(generator: np.random.Generator, count: int) -> np.ndarray:
        if deviation == 0:
            return np.ones(1)
        return generator.lognormal(-variance / 2, math.sqrt(variance), count)

    return draw
