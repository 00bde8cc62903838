"""The inputs of agents with a network: observation, load, last cost and configuration, standardised."""

from __future__ import annotations

import numpy as np

from tuner.agents.agent import State
from tuner.agents.log_cost import log_cost
from tuner.agents.policy_file import StoredArrays
from tuner.knobs import KnobSpace

__all__ = ["Inputs"]

LEAST_SPREAD = 0.1
"""Least standard deviation to divide by: while the load hardly changed, its first change would be
enormous."""
FARTHEST = 5.0
"""Standard deviations at which inputs are clipped."""


class Inputs:
    """Turns windows into input vectors.

    The environment's observation (as long as the first one; zeros where there is none), the load level and
    the logarithm of the last cost are standardised with the mean and spread of all windows so far;
    coordinates of the configuration lie in -1..1. Vectors are kept raw and standardised when they are used,
    because mean and spread go on changing.

    Args:
        space: The configurations.
    """

    def __init__(self, space: KnobSpace) -> None:
        self._features = 2.0 * space.features().astype(np.float64) - 1.0
        self._observed = -1
        self._count = 0
        self._mean = np.zeros(0)
        self._squares = np.zeros(0)

    @property
    def width(self) -> int:
        """Length of an input vector; known from the first window on."""
        return int(max(self._observed, 0) + 2 + self._features.shape[1])

    @property
    def seen(self) -> bool:
        """Whether there was a window."""
        return self._observed >= 0

    def raw(self, state: State, cost: float) -> np.ndarray:
        """Return the vector of a state, not standardised.   # (width,)."""
        observation = np.zeros(0) if state.observation is None else np.asarray(state.observation, np.float64)
        if not self.seen:
            self._begin(observation.size)
        if observation.size != self._observed:
            observation = self._mean[: self._observed]  # a window without one is taken to be average
        return np.concatenate(
            [observation, [float(state.level), log_cost(cost)], self._features[state.configuration]]
        )

    def learn(self, raw: np.ndarray) -> None:
        """Take a window's vector into the mean and spread (Welford)."""
        values = raw[: self._mean.size]
        self._count += 1
        change = values - self._mean
        self._mean += change / self._count
        self._squares += change * (values - self._mean)

    def standardised(self, raw: np.ndarray) -> np.ndarray:
        """Return vectors as a network gets them.   # (..., width) float32."""
        spread = np.maximum(np.sqrt(self._squares / max(self._count, 1)), LEAST_SPREAD)
        values = np.array(raw, dtype=np.float64)
        n = self._mean.size
        values[..., :n] = np.clip((values[..., :n] - self._mean) / spread, -FARTHEST, FARTHEST)
        return values.astype(np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays."""
        counts = np.array([self._observed, self._count], dtype=np.int64)
        return {"input_counts": counts, "input_mean": self._mean, "input_squares": self._squares}

    def restore(self, arrays: StoredArrays) -> None:
        """Take over what :meth:`arrays` returned.

        Raises:
            ValueError: A value is out of range.
        """
        observed, count = arrays.take("input_counts", (2,), "i").tolist()
        if observed < 0:
            return
        self._begin(observed)
        mean = arrays.take("input_mean", self._mean.shape)
        squares = arrays.take("input_squares", self._mean.shape)
        if count < 0 or not (np.isfinite(mean).all() and (squares >= 0).all()):
            raise ValueError("inputs have values out of range")
        self._count, self._mean, self._squares = count, mean.copy(), squares.copy()

    def _begin(self, observed: int) -> None:
        self._observed = observed
        self._mean = np.zeros(observed + 2)
        self._squares = np.zeros(observed + 2)
