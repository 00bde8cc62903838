"""A life: a driver keeps a held-out server with one variant of the guard, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from tuner.agents.agent import Agent
from tuner.agents.rrl import RRL
from tuner.control import ControlLoop, Driver, GuardLimits, Oversight, Watched
from tuner.control.decide.rules import decide
from tuner.experiments.guard.load import LOADS, TROUBLED, MovingLoad
from tuner.experiments.guard.server import HeldOut, default_is_best, held_out
from tuner.experiments.guard.stage import Stage
from tuner.experiments.guard.trouble import Troubles, troubles
from tuner.experiments.guard.variants import FULL, Variant
from tuner.experiments.guard.yardstick import Yardstick
from tuner.knobs import KnobSpace
from tuner.objective import Objective

__all__ = ["FIGURES", "WINDOW", "AgentMaker", "LivedLife", "driver_on", "figures", "live", "lived_by"]

AgentMaker = Callable[[KnobSpace, Objective, int], Agent]
"""From the configurations, what is minimised, and a seed."""
WINDOW = 5.0
"""Length of a window, s."""
LONGER = 1.15
"""A life is longer than its windows: changes take time."""
FIGURES = {
    "windows that broke the SLO": "%",
    "regret": "%",
    "changes": "per 100 windows",
    "requests late or failed": "%",
    "unsafe configurations tried": "%",
    "improvement": "%",
    "orders disobeyed": "windows",
}
"""Name -> unit; the less the better, but for the improvement."""


class Prepared(NamedTuple):
    """All that the variants of a life have in common."""

    case: HeldOut
    load: MovingLoad
    troubles: Troubles
    yardstick: Yardstick
    seed: int


class LivedLife(NamedTuple):
    """What came of a life."""

    figures: dict[str, float]
    rules: frozenset[str]
    """The rules that answered, and the kinds of windows that there were to set aside."""


def live(load: str, seed: int, variant: Variant, windows: int) -> LivedLife:
    """Let a variant keep the server of a seed under a load.

    A rule that never answers decides nothing: without it the life is the same, and is not lived again.
    """
    full = _full(load, seed, windows)
    if variant == FULL or (variant.without and not full.rules & {*variant.without}):
        return full
    return _lived(_prepared(load, seed, windows), variant, windows)


@lru_cache(2)
def _full(load: str, seed: int, windows: int) -> LivedLife:
    return _lived(_prepared(load, seed, windows), FULL, windows)


@lru_cache(2)
def _prepared(load: str, seed: int, windows: int) -> Prepared:
    """Draw a server and what it will meet; each load has servers of its own."""
    rng = np.random.default_rng([seed, [*LOADS].index(load)])
    case = (default_is_best if load == "default is best" else held_out)(rng, seed)
    wrong = troubles(rng, case.space, windows, seed) if load in TROUBLED else Troubles()
    return Prepared(
        case=case,
        load=LOADS[load](case.rate, windows * WINDOW * LONGER),
        troubles=wrong,
        yardstick=Yardstick(case, WINDOW, failing=wrong.bad),
        seed=seed,
    )


def _default(space: KnobSpace, objective: Objective, seed: int) -> RRL:
    return RRL(space, objective=objective, seed=seed, synchronous=True)


def _lived(prepared: Prepared, variant: Variant, windows: int, agent: AgentMaker | None = None) -> LivedLife:
    case, seed = prepared.case, prepared.seed
    stage = Stage(case, prepared.load, prepared.troubles, seed=seed, trusted=variant.trusted)
    driver = driver_on(stage, case.objective, seed=seed, window=WINDOW, variant=variant, agent=agent)
    rules = {driver.step().decision.rule for _ in range(windows)}
    return LivedLife(figures(stage, prepared.yardstick), frozenset(rules | stage.unsound))


def lived_by(agent: AgentMaker, load: str, seed: int, variant: Variant, windows: int) -> LivedLife:
    """Let another agent keep the server of a seed under a load, behind a variant of the guard."""
    return _lived(_prepared(load, seed, windows), variant, windows, agent)


def driver_on(
    stage: Stage,
    objective: Objective,
    *,
    seed: int,
    window: float,
    variant: Variant = FULL,
    agent: AgentMaker | None = None,
) -> Driver:
    """Return a driver in front of a stage.

    Args:
        stage: The server.
        objective: What is minimised, and the SLO.
        seed: Of the agent.
        window: Length of a window, s.
        variant: Of the guard.
        agent: Makes the agent; the default one without it.
    """
    make = agent or _default
    limits: dict[str, Any] = dict(variant.limits)
    loop = ControlLoop(
        stage.space,
        objective,
        make(stage.space, objective, seed),
        limits=GuardLimits(**limits),
        rules=partial(decide, rules=variant.rules, breaker=variant.breaker),
    )
    return Driver(
        Watched(stage, stage, stage.clock),
        loop,
        window=window,
        oversight=Oversight(orders=stage),
        notify=lambda _: None,
    )


def figures(stage: Stage, yardstick: Yardstick) -> dict[str, float]:
    """Return what came of a life, by the names of `FIGURES`.

    Windows without a measurement, and those in which foreign processes took part, are left out.
    """
    windows = [one for one in stage.happened if one is not None and not one.disturbed]
    expected = [yardstick.at(one.condition) for one in windows]
    default = yardstick.space.encode(yardstick.space.default)
    cost = np.array([one.cost for one in windows])
    safe = np.array([e.safe(one.configuration) for e, one in zip(expected, windows, strict=True)])
    tried = np.array([one.tried for one in windows])
    best, usual = np.array([e.least_cost for e in expected]), np.array([e.cost[default] for e in expected])
    possible = np.array([e.achievable for e in expected])
    kept = np.array([one.kept for one in windows])
    return {
        "windows that broke the SLO": 100 * float(np.mean(~kept[possible])) if possible.any() else 0.0,
        "regret": 100 * float(cost.mean() / best.mean() - 1),
        "changes": 100 * stage.changes / len(stage.happened),
        "requests late or failed": 100 * (stage.late + stage.failed) / stage.sent,
        "unsafe configurations tried": 100 * float(np.mean(~safe[tried])) if tried.any() else 0.0,
        "improvement": 100 * float((usual - cost).sum() / usual.sum()),
        "orders disobeyed": float(stage.disobeyed),
    }
