"""Changing load: the daemon's SLO attainment against that of the best configuration in hindsight.

Simulated Triton servers in virtual time, so that nobody else on the machine takes part: their load goes up
and down, and the daemon begins with the default and knows nothing. Every configuration of the grid serves the
same load without ever being changed; the best of them is chosen when all is over. Two have windows of 10 s as
usual, two of 1 s as in the live soak: few requests scatter far, and a change takes long beside such a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.adapters import connect
from tuner.experiments.daemon.lives import Life, keep_simulated, simulated_url
from tuner.experiments.daemon.memory import growth, sampled
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.objective import Objective, parse_slo
from tuner.profiler.attachment import attach

__all__ = ["CASES", "ChangingLoad", "Hindsight", "StandingStill", "attainment"]

MODEL, USUAL = "mlp", 10.0
"""What is served, and how long the daemon's windows are as a rule, s."""
STILL_WINDOWS = 120
"""Of each configuration that stands still: whole turns all."""
MARGIN = 2.0


class ChangingLoad(NamedTuple):
    """A load, and what is asked under it."""

    low: float
    high: float
    """requests/s"""
    window: float = USUAL
    """s"""
    turn: int = 20
    """Windows until the load is where it was; even."""
    slo: str = "p95=30ms"
    goal: str = "latency"

    def __str__(self) -> str:
        short = "" if self.window == USUAL else f", windows of {self.window:g} s"
        return f"{self.low:g} and {self.high:g} requests/s{short}"

    def url(self, windows: int, seed: int) -> str:
        """Return the URL of a simulated server whose load is low and high for half a turn each."""
        half = self.turn // 2
        count = 2 * -(-2 * windows // self.turn)  # twice as long as needed: changes take time, too
        steps = [(number * half * self.window, (self.low, self.high)[number % 2]) for number in range(count)]
        return simulated_url(MODEL, steps, seed)

    def target(self, windows: int, seed: int) -> dict[str, object]:
        """Return the target that the daemon is to keep."""
        return {
            "url": self.url(windows, seed),
            "seed": seed,
            "slo": self.slo,
            "objective": self.goal,
            "mode": "apply",
            "window": f"{self.window:g}s",
        }


CASES = (
    ChangingLoad(100.0, 300.0),
    ChangingLoad(250.0, 750.0),
    ChangingLoad(15.0, 400.0, window=1.0, turn=40, slo="mean=25ms", goal="strict"),
    ChangingLoad(15.0, 700.0, window=1.0, turn=40, slo="mean=40ms", goal="strict"),
)


class StandingStill(NamedTuple):
    """One configuration that is never changed."""

    case: ChangingLoad
    configuration: int
    """Its number in the space."""
    windows: int


class KeptTargets(NamedTuple):
    """What became of the targets that the daemon kept."""

    lives: list[Life]
    memory: float
    """Its growth, %."""


KEPT = "kept by the daemon"


@experiment(
    name="daemon-hindsight",
    title="Changing load in virtual time: the daemon against the best configuration in hindsight",
    minutes=4,
    by_clock=("growth of memory *",),
)
class Hindsight(Experiment[str | StandingStill, Any]):
    """Keeps all targets in one daemon, lets every configuration stand still, and compares."""

    windows = Scaled(600, quick=120)
    """Of each target that the daemon keeps: whole turns all."""

    def tasks(self) -> Iterator[str | StandingStill]:
        yield KEPT
        for case in CASES:
            space = connect(case.url(STILL_WINDOWS, 0)).space
            yield from (StandingStill(case, int(index), STILL_WINDOWS) for index in space.distinct)

    def seeds_of(self, _: str | StandingStill) -> tuple[int]:
        """One daemon keeps the targets of all seeds."""
        return (0,)

    def alone(self, task: str | StandingStill) -> bool:
        """The daemon's memory is measured in this process."""
        return task == KEPT

    def measure(self, task: str | StandingStill, _: int) -> KeptTargets | float:
        if isinstance(task, StandingStill):
            return attainment(task)
        seeds = range(self.options.seeds)
        targets = [case.target(self.windows, seed) for case in CASES for seed in seeds]
        with sampled() as memory:
            lives = keep_simulated(targets, self.windows)
        return KeptTargets(lives, growth(memory))

    def rows(self, found: Answers[str | StandingStill, Any]) -> Iterator[Row]:
        (kept,) = found[KEPT]
        for number, case in enumerate(CASES):
            still = {
                task.configuration: share
                for task, (share,) in found.items()
                if isinstance(task, StandingStill) and task.case == case
            }
            lives = kept.lives[number * self.options.seeds :][: self.options.seeds]
            yield from _compared(case, lives, still)
        decisions = float(self.windows * len(kept.lives))
        yield Row(id="decisions", published=1000.0, measured=decisions, note="of all seeds")
        name, note = "growth of memory after warm-up", "target: below"
        yield row(name, [kept.memory], unit="%", published=5.0, note=note)

    def configuration(self) -> dict[str, Any]:
        return {"windows": self.windows, "cases": [case._asdict() for case in CASES]}


def _compared(case: ChangingLoad, lives: Sequence[Life], still: dict[int, float]) -> list[Row]:
    """Compare the daemon's lives with the share of each configuration that stood still, by its number."""
    space = connect(case.url(STILL_WINDOWS, 0)).space
    best = max(still, key=lambda index: still[index])
    text = f"{space.format(space.decode(best))}: {still[best]:.1f} %"
    note = f"target: at least the best of {len(still)} ({text}) minus {MARGIN:g}"
    shares = [100 * float(np.mean(life.kept)) for life in lives]
    later = [100 * float(np.mean(life.kept[case.turn :])) for life in lives]
    default = still[int(space.canonical[space.encode(space.default)])]
    least = round(still[best] - MARGIN, 2)
    return [
        row(f"{case}: SLO attainment", shares, unit="%", published=least, note=note),
        row(f"{case}: after the first turn of the load", later, unit="%"),
        row(f"{case}: that of the default", [default], unit="%"),
    ]


def attainment(task: StandingStill) -> float:
    """Return the share of the windows in which a configuration that is never changed keeps the SLO, %."""
    case = task.case
    with attach(case.url(task.windows, 0)) as attachment:
        space = attachment.space
        attachment.backend.apply(space.decode(task.configuration))
        objective = Objective(slo=parse_slo(case.slo), goal=case.goal)
        kept = [objective.kept(attachment.profiler.measure(case.window)) for _ in range(task.windows)]
    return 100 * float(np.mean(kept))
