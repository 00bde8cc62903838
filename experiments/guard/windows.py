"""Short windows: how near the least CPU, or the least latency, the guard ends with windows of 1, 2 and 5 s.

A driver with the default agent keeps a simulated Triton of the demo's model under a steady load for ten
minutes of virtual time. The least that any configuration needs while it keeps the SLO is known from long
simulations of all of them, and is the same whatever the windows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from tuner.envs.simulator.server import MODELS
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.guard.life import driver_on
from tuner.experiments.guard.load import Condition, MovingLoad
from tuner.experiments.guard.server import HeldOut
from tuner.experiments.guard.stage import Stage
from tuner.experiments.guard.trouble import Troubles
from tuner.experiments.guard.yardstick import Yardstick
from tuner.objective import Objective, parse_slo

__all__ = ["GuardWindows", "WindowsFound", "WindowsTask", "end_of"]

MODEL, SLO = "mlp", "p95=30ms"
RATES = (100.0, 300.0)
"""requests/s"""
WINDOWS = (1.0, 2.0, 5.0)
"""s"""
GOALS = ("cpu", "latency")
LONG = 5.0
"""Length of the windows in which the least is measured, s."""
TARGET = 1.1
"""Of the use at the end beside the least."""


class WindowsTask(NamedTuple):
    """A goal under a load, with windows of a length."""

    goal: str
    rate: float
    """requests/s"""
    window: float
    """s"""

    def __str__(self) -> str:
        return f"least {self.goal}, {self.rate:g} requests/s, windows of {self.window:g} s"


class WindowsFound(NamedTuple):
    """What came of a life."""

    end: float
    """Mean use in the last quarter beside the least of any configuration that keeps the SLO."""
    left: float
    """Expected cost of the configuration that the driver leaves behind, beside the least of any."""
    kept: float
    """Share of windows that kept the SLO, %."""
    late: float
    """Share of requests that were answered after the bound of the SLO, changes included, %."""
    changes: float


@experiment(
    name="guard-windows",
    title="Short windows: the use at the end beside the least that keeps the SLO",
    minutes=3,
)
class GuardWindows(Experiment[WindowsTask, WindowsFound]):
    """Both goals under both loads with windows of all lengths."""

    first_seed = 101
    seconds = Scaled(600.0, quick=300.0)
    """Of each life."""

    def tasks(self) -> list[WindowsTask]:
        return [WindowsTask(*one) for one in itertools.product(GOALS, RATES, WINDOWS)]

    def measure(self, task: WindowsTask, seed: int) -> WindowsFound:
        return end_of(task, seed, self.seconds)

    def rows(self, found: Answers[WindowsTask, WindowsFound]) -> Iterator[Row]:
        for task, lives in found.items():
            left, kept, late, changes = (
                median(getattr(one, name) for one in lives) for name in ("left", "kept", "late", "changes")
            )
            note = (
                f"target: at most; it leaves {left:.2f} times the least cost behind; {kept:.1f} % of the "
                f"windows kept the SLO, {late:.2f} % of the requests were late, {changes:g} changes"
            )
            ends = [one.end for one in lives]
            yield row(f"{task}: {task.goal} at the end beside the least", ends, published=TARGET, note=note)

    def configuration(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "model": MODEL, "slo": SLO}

    def details(self, found: Answers[WindowsTask, WindowsFound]) -> dict[str, Any]:
        return {str(task): [one._asdict() for one in lives] for task, lives in found.items()}


def end_of(task: WindowsTask, seed: int, seconds: float) -> WindowsFound:
    """Let a driver keep the server for some time, and see where it ends."""
    case, condition = _case(task), Condition(task.rate)
    expected = Yardstick(case, LONG).at(condition)
    stage = Stage(case, MovingLoad(((0.0, condition),)), Troubles(), seed=seed)
    driver = driver_on(stage, case.objective, seed=seed, window=task.window)
    for _ in range(round(seconds / task.window)):
        driver.step()
    windows = [one for one in stage.happened if one is not None]
    last = windows[-(len(windows) // 4) :]
    use = np.mean([one.cpu if task.goal == "cpu" else one.latency for one in last])
    least = expected.least(expected.cpu if task.goal == "cpu" else expected.latency)
    changes = stage.changes
    left = expected.cost[case.space.encode(case.space.nearest(driver.finish()))]
    return WindowsFound(
        end=float(use / least),
        left=float(left / expected.least_cost),
        kept=100 * float(np.mean([one.kept for one in windows])),
        late=100 * stage.late / stage.sent,
        changes=float(changes),
    )


def _case(task: WindowsTask) -> HeldOut:
    server = MODELS[MODEL]
    objective = Objective(slo=parse_slo(SLO), goal=task.goal, cores=server.cores)
    return HeldOut(server=server, objective=objective, rate=task.rate)
