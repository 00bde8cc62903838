"""Clipper's adaptive batching: additive increase, multiplicative decrease of the largest batch.

Crankshaw et al., Clipper, NSDI'17, section 4.3.1: the largest batch grows by a fixed amount until the latency
exceeds the SLO, then shrinks by 10 %. Here the agent decides once per window, from the cost alone: above 1
the SLO was broken.

It changes one knob, the first whose role is one of :data:`ROLES`; all others stay at the start. On a Triton
and on a GPU serving TensorFlow that is the largest batch; in the cluster scheduler its cap on the batch; on
a CPU serving TensorFlow, which does not batch, how many requests it executes at once. Values below 1 mean
"off" or "as many as cores" there and are left out; not so in the first knob, where none has such a role.

Where we differ: the knob moves on its grid, so the increase is counted in grid steps (an increase of one
request would take 32 windows from a batch of 32 to 64) and a decrease goes down at least one step. To make it
as strong as we could, each load level keeps its own limit and begins with that of the nearest, and
:meth:`ClipperAimd.best` is the least mean cost of everything tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tuner.agents.agent import State
from tuner.agents.bookkeeper import Bookkeeper, Parameters
from tuner.agents.choice import allowed_numbers
from tuner.agents.load_levels import nearest_level
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rules import check_rules
from tuner.knobs import KnobSpace, Role

__all__ = ["ROLES", "AimdParameters", "ClipperAimd"]

ROLES = (Role.BATCH, Role.PARALLELISM)
"""Roles of knobs that say how much is executed together. In a space that has neither, the first knob
changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AimdParameters(Parameters):
    """The constants of additive increase, multiplicative decrease."""

    increase: float = 1.0
    """Grid steps by which the knob rises after a window that kept the SLO."""
    decrease: float = 0.1
    """Share of its value that it loses after a window that broke it."""

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rules(
            self,
            increase=(self.increase > 0, "above 0"),
            decrease=(0 < self.decrease < 1, "above 0 and below 1"),
        )


class ClipperAimd(Bookkeeper[AimdParameters]):
    """The agent: one limit per load level, in grid steps.

    Attributes:
        knob: Name of the knob that it changes.
    """

    name = "clipper_aimd"
    constants: ClassVar[type[Any]] = AimdParameters

    def __init__(self, space: KnobSpace, parameters: AimdParameters | None = None, *, seed: int = 0) -> None:
        super().__init__(space, parameters, seed=seed)
        suited = [knob.name for role in ROLES if (knob := space.with_role(role)) is not None]
        self.knob = next(iter((*suited, *space.names)), "")
        self._limits: dict[int, float] = {}
        if self.knob:
            grid = np.array(space.knobs[space.names.index(self.knob)].grid)
            self._lowest = min(int(np.searchsorted(grid, 1.0)), len(grid) - 1) if suited else 0
            self._grid = grid

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the start with the knob at the level's limit, or the allowed configuration nearest to it."""
        allowed = allowed_numbers(self.space, allowed)
        target = self._configuration(int(self._limit(state.level)))
        return int(allowed[np.argmin(self.space.distances(target)[allowed])])

    def _learn(self, state: State, configuration: int, cost: float) -> None:
        limit = self._limit(state.level)
        if not self.knob or self.space.canonical[self._configuration(int(limit))] != configuration:
            return  # another configuration says nothing about the limit
        if cost <= 1.0:
            limit = min(limit + self.parameters.increase, float(len(self._grid) - 1))
        else:
            value = self._grid[int(limit)] * (1.0 - self.parameters.decrease)
            below = int(np.searchsorted(self._grid, value, side="right")) - 1
            limit = float(max(min(below, int(limit) - 1), self._lowest))
        self._limits[state.level] = limit

    def _limit(self, level: int) -> float:
        """Return the level's limit, or that of the nearest level, or where the knob starts."""
        if self._limits:
            return self._limits[nearest_level(self._limits, level)]
        if not self.knob:
            return 0.0
        step = int(self.space.coordinates[self.start, self.space.names.index(self.knob)])
        return float(max(step, self._lowest))

    def _configuration(self, step: int) -> int:
        """Return the start with the knob at a step of its grid."""
        if not self.knob:
            return self.start
        steps = self.space.coordinates[self.start].copy()
        steps[self.space.names.index(self.knob)] = step
        return int(self.space.canonical[np.ravel_multi_index(tuple(steps), self.space.shape)])

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "limit_level": np.array(list(self._limits), dtype=np.int64),
            "limit": np.array(list(self._limits.values()), dtype=np.float64),
        }

    def _restore(self, arrays: StoredArrays) -> None:
        super()._restore(arrays)
        levels = arrays.take("limit_level", (None,), "i")
        limits = arrays.take("limit", levels.shape)
        if self.knob and not ((limits >= self._lowest) & (limits < len(self._grid))).all():
            raise ValueError("a limit is outside the grid")
        self._limits = dict(zip(levels.tolist(), limits.tolist(), strict=True))
