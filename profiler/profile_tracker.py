"""The batching profile over many windows, kept apart by what it depends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tuner.knobs import KnobSpace, Role
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["ProfileTracker"]


class ProfileTracker:
    """Adds up executions of undisturbed windows; one window alone sees few batch sizes.

    l(b) depends on how many instances share the cores, hence one profile per number of them.

    Args:
        space: The server's knobs.
    """

    def __init__(self, space: KnobSpace) -> None:
        self._space = space
        self._counts: dict[float, np.ndarray] = defaultdict(lambda: np.zeros(1, np.int64))
        self._seconds: dict[float, np.ndarray] = defaultdict(lambda: np.zeros(1))

    def add(self, configuration: Mapping[str, float], counts: np.ndarray, seconds: np.ndarray) -> None:
        """Add one window.

        Args:
            configuration: What ran.
            counts: Executions per batch size.   # (B+1,)
            seconds: Time in them.   # (B+1,) s
        """
        key = self._parallelism(configuration)
        self._counts[key] = _sum(self._counts[key], counts)
        self._seconds[key] = _sum(self._seconds[key], seconds)

    def profile(self, configuration: Mapping[str, float]) -> BatchingProfile | None:
        """Return l(b) with as many instances as a configuration has, or None if nothing was executed."""
        key = self._parallelism(configuration)
        if key not in self._counts or not self._seconds[key].sum() > 0:
            return None
        return fit_profile(self._counts[key], self._seconds[key])

    def _parallelism(self, configuration: Mapping[str, float]) -> float:
        parallelism = self._space.value_of(Role.PARALLELISM, configuration)
        return 1.0 if parallelism is None else parallelism


def _sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total
