"""Changing load: the daemon's SLO attainment against that of the best configuration in hindsight.

Simulated Triton servers in virtual time, so that nobody else on the machine takes part: their load goes up
and down, and the daemon begins with the default and knows nothing. Every configuration of the grid serves the
same load without ever being changed; the best of them is chosen when all is over. Two have windows of 10 s as
usual, two of 1 s as in the live soak: few requests scatter far, and a change takes long beside such a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tuner.adapters import connect
from tuner.experiments.daemon.lives import Life, keep_simulated, simulated_url
from tuner.experiments.daemon.memory import growth, sampled
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.objective import Objective, parse_slo
from tuner.profiler.attachment import attach

__all__ = ["CASES", "Case", "Still", "attainment", "run"]

MODEL, USUAL = "mlp", 10.0
"""What is served, and how long the daemon's windows are as a rule, s."""
WINDOWS, QUICK_WINDOWS, STILL_WINDOWS = 600, 120, 120
"""Of each target the daemon keeps, and of each configuration that stands still: whole turns all."""
MARGIN = 2.0


class Case(NamedTuple):
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

    def settings(self, seed: int) -> str:
        """Return how the daemon is to keep it."""
        return f"seed: {seed}, slo: {self.slo}, objective: {self.goal}, mode: apply, window: {self.window:g}s"


CASES = (
    Case(100.0, 300.0),
    Case(250.0, 750.0),
    Case(15.0, 400.0, window=1.0, turn=40, slo="mean=25ms", goal="strict"),
    Case(15.0, 700.0, window=1.0, turn=40, slo="mean=40ms", goal="strict"),
)


class Still(NamedTuple):
    """One configuration that is never changed."""

    case: Case
    configuration: int
    """Its number in the space."""
    windows: int


def run(options: Options) -> Result:
    """Keep all targets, let every configuration stand still, and compare."""
    windows = QUICK_WINDOWS if options.quick else WINDOWS
    seeds = range(options.seeds)
    targets = [(case.url(windows, seed), case.settings(seed)) for case in CASES for seed in seeds]
    with sampled() as memory:
        lives = keep_simulated(targets, windows)
    rows: list[Row] = []
    for number, case in enumerate(CASES):
        rows += _compared(case, lives[number * len(seeds) : (number + 1) * len(seeds)], options)
    rows += [
        Row(id="decisions", published=1000.0, measured=float(windows * len(targets)), note="of all seeds"),
        row(
            "growth of memory after warm-up", [growth(memory)], unit="%", published=5.0, note="target: below"
        ),
    ]
    return Result(
        experiment="daemon-hindsight",
        seeds=options.seeds,
        configuration={"windows": windows, "cases": [case._asdict() for case in CASES]},
        rows=rows,
    )


def _compared(case: Case, lives: Sequence[Life], options: Options) -> list[Row]:
    """Let every configuration stand still under a load, and compare the daemon's lives with them."""
    space = connect(case.url(STILL_WINDOWS, 0)).space
    numbers = [int(index) for index in space.distinct]
    tasks = [Still(case, index, STILL_WINDOWS) for index in numbers]
    found = dict(zip(numbers, options.run_all(attainment, tasks, "configurations"), strict=True))
    best = max(found, key=lambda index: found[index])
    text = f"{space.format(space.decode(best))}: {found[best]:.1f} %"
    least, note = (
        round(found[best] - MARGIN, 2),
        f"target: at least the best of {len(found)} ({text}) minus {MARGIN:g}",
    )
    shares = [100 * float(np.mean(life.kept)) for life in lives]
    later = [100 * float(np.mean(life.kept[case.turn :])) for life in lives]
    default = found[int(space.canonical[space.encode(space.default)])]
    return [
        row(f"{case}: SLO attainment", shares, unit="%", published=least, note=note),
        row(f"{case}: after the first turn of the load", later, unit="%"),
        row(f"{case}: that of the default", [default], unit="%"),
    ]


def attainment(task: Still) -> float:
    """Return the share of the windows in which a configuration that is never changed keeps the SLO, %."""
    case = task.case
    with attach(case.url(task.windows, 0)) as attachment:
        space = attachment.space
        attachment.backend.apply(space.decode(task.configuration))
        objective = Objective(slo=parse_slo(case.slo), goal=case.goal)
        kept = [objective.kept(attachment.profiler.measure(case.window)) for _ in range(task.windows)]
    return 100 * float(np.mean(kept))
