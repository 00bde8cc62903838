"""The actions of a walker: one knob one grid step down or up, or nothing (CAPES, section 3.4)."""

from __future__ import annotations

import numpy as np

from tuner.knobs import KnobSpace

__all__ = ["NOTHING", "StepActions"]

NOTHING = 0
"""The action that keeps the configuration; 2k + 1 and 2k + 2 move knob k down and up."""


class StepActions:
    """The actions in a knob space.

    Args:
        space: The configurations.

    Attributes:
        count: How many actions there are.
    """

    def __init__(self, space: KnobSpace) -> None:
        self._space = space
        self.count = 1 + 2 * len(space.names)
        self._strides = np.array(
            [np.prod(space.shape[k + 1 :]) for k in range(len(space.shape))], dtype=np.int64
        )

    def targets(self, configuration: int) -> np.ndarray:
        """Return where each action leads from a configuration, -1 for nowhere.   # (count,) int64."""
        targets = np.full(self.count, -1, dtype=np.int64)
        targets[NOTHING] = configuration
        here = self._space.coordinates[configuration]
        highest = np.array(self._space.shape, dtype=np.int64) - 1
        down, up = targets[1::2], targets[2::2]
        down[here > 0] = configuration - self._strides[here > 0]
        up[here < highest] = configuration + self._strides[here < highest]
        known = targets >= 0
        targets[known] = self._space.canonical[targets[known]]
        # A step of a knob without effect leads nowhere.
        targets[1:][targets[1:] == self._space.canonical[configuration]] = -1
        return targets

    def options(self, configuration: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where each action leads, and whether it may be taken.   # (count,) int64, (count,) bool."""
        targets = self.targets(configuration)
        return targets, np.isin(targets, self._space.canonical[allowed])

    def between(self, old: int, new: int) -> int | None:
        """Return the action that leads from one configuration to another; None if it takes more than one."""
        found = np.flatnonzero(self.targets(old) == self._space.canonical[new])
        return int(found[0]) if found.size else None
