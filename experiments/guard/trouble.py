"""Troubles of a life, drawn before it begins: every variant meets the same ones in the same windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tuner.control.decide.orders import Orders
from tuner.knobs import KnobSpace

__all__ = ["ABSENCE", "BLIND", "SPARED", "Troubles", "troubles"]

SPARED = 8
"""Windows at the beginning of a life in which nothing goes wrong yet."""
METRICS = {"missing": 0.02, "false": 0.02, "no metrics": 0.01}
"""What may be wrong with the metrics of a window, and how often."""
CHANGES = {"refused": 0.05, "late": 0.04, "lost": 0.04, "blinding": 0.08}
"""What may become of a change: refused, nobody hears of its end, whether it came about or not, or it comes
about and nothing can be seen for a while."""
BLIND = 4
"""For how many windows nothing can be seen after such a change."""
SLOW = 0.08
"""Share of the configurations with which executions take many times as long, without a pattern."""
BLACKOUTS, BLACKOUT = 2, 5
"""How often, and for how many windows, all metrics are missing."""
REFUSALS, REFUSAL = 2, 15
"""How often, and for how many windows, the server refuses every change."""
NEIGHBOURS, NEIGHBOUR = 4, 3
"""How often, and for how many windows, foreign processes use a core."""
FAILURES, FAILURE = 2, 4
"""How often, and for how many windows, some requests fail whatever the configuration."""
AWAY, ABSENCE = 2, 20.0
"""How often the server is away, and for how long, s."""
TAKEOVERS = 2
"""How often somebody else changes the server."""
ORDER = 12
"""For how many windows the operator pauses the target, and pins it."""
MEMORY = 20.0
"""How far the quantiles of a server look back, s, where they do."""


@dataclass(frozen=True, kw_only=True)
class Troubles:
    """What goes wrong in a life, by default nothing; windows are numbered from 0."""

    metrics: Mapping[int, str] = field(default_factory=dict)
    """What is wrong with the metrics of a window."""
    changes: Mapping[int, str] = field(default_factory=dict)
    """What becomes of a change after a window."""
    neighbours: frozenset[int] = frozenset()
    """Windows in which foreign processes use a core."""
    failures: frozenset[int] = frozenset()
    """Windows in which some requests fail."""
    absences: frozenset[int] = frozenset()
    """Windows in which the server goes away; it comes back with its default."""
    takeovers: Mapping[int, int] = field(default_factory=dict)
    """The number of the configuration that somebody else sets before a window."""
    failing: frozenset[int] = frozenset()
    """Configurations under which some requests fail."""
    slow: frozenset[int] = frozenset()
    """Configurations with which executions take many times as long."""
    orders: Mapping[int, Orders] = field(default_factory=dict)
    """What the operator wants after a window."""
    memory: float = 0.0
    """How far the server's quantiles look back, s."""

    @property
    def bad(self) -> frozenset[int]:
        """Configurations that never keep the SLO."""
        return self.failing | self.slow


def troubles(rng: np.random.Generator, space: KnobSpace, windows: int, number: int) -> Troubles:
    """Draw the troubles of a life.

    Args:
        rng: Where they come from.
        space: The knobs.
        windows: How long the life is.
        number: Quantiles look back where it is odd.
    """

    def runs(count: int, length: int) -> frozenset[int]:
        begins = rng.integers(SPARED, max(windows - length, SPARED + 1), count)
        return frozenset(int(begin) + one for begin in begins for one in range(length))

    metrics = _fates(rng, METRICS, windows) | dict.fromkeys(runs(BLACKOUTS, BLACKOUT), "missing")
    changes = _fates(rng, CHANGES, windows) | dict.fromkeys(runs(REFUSALS, REFUSAL), "refused")
    anything = rng.choice(space.distinct, TAKEOVERS + 2)
    *set_by_others, pinned, back = map(int, anything)
    slow = rng.choice(space.distinct, int(SLOW * space.distinct.size), replace=False)
    largest = space.coordinates[:, 0] == len(space.knobs[0].grid) - 1
    return Troubles(
        metrics=metrics,
        changes=changes,
        neighbours=runs(NEIGHBOURS, NEIGHBOUR),
        failures=runs(FAILURES, FAILURE),
        absences=runs(AWAY, 1),
        takeovers=dict(zip(sorted(runs(TAKEOVERS, 1)), set_by_others, strict=False)),
        failing=frozenset(map(int, np.flatnonzero(largest))),
        slow=frozenset(map(int, slow)) - {space.encode(space.default)},
        orders=_orders(rng, space, windows, pinned, back),
        memory=MEMORY if number % 2 else 0.0,
    )


def _fates(rng: np.random.Generator, chances: Mapping[str, float], windows: int) -> dict[int, str]:
    """Draw for each window one of the names with its chance, or none."""
    names = [*chances, ""]
    drawn = rng.choice(len(names), windows, p=[*chances.values(), 1.0 - sum(chances.values())])
    return {window: names[one] for window, one in enumerate(drawn) if window >= SPARED and one < len(chances)}


def _orders(
    rng: np.random.Generator, space: KnobSpace, windows: int, pinned: int, back: int
) -> dict[int, Orders]:
    """Let the operator pause, pin and roll back once, in three parts of a life."""
    part = max((windows - SPARED) // 3, 1)
    begins = [SPARED + number * part + int(rng.integers(max(part - ORDER, 1))) for number in range(3)]
    lasts = range(min(ORDER, part))
    paused = {begins[0] + one: Orders(paused="by the experiment") for one in lasts}
    fixed = {begins[1] + one: Orders(pinned=space.decode(pinned)) for one in lasts}
    return paused | fixed | {begins[2]: Orders(rollback=space.decode(back))}
