"""RRL, section 6.2: windows until near the oracle for good, for RRL and everything it is compared with.

Inception V3 on the CPU server (1,331 configurations) and on the GPU server under a constant load, cold.
Beside the paper's rivals there are those that people use: Optuna's two samplers, the quick search of Triton's
Model Analyzer, Clipper's rule, and random search. All have the same windows and arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.rrl.study import (
    CPU,
    GPU,
    MEAN,
    TIMES_FEWER,
    Case,
    agent_rows,
    named,
    of_agent,
    run_cases,
)
from tuner.laboratory.curves import bars, over_time
from tuner.laboratory.figures import above, draw_bars, draw_time
from tuner.laboratory.trial import Trial
from tuner.report import style

__all__ = ["CASES", "plot", "run"]

NAME = "rrl-rivals"
WINDOWS = 600
AGENTS = (
    "rrl", "q_learning", "capes", "capes_level", "deeprm",
    "tpe", "gp", "hill_climb", "clipper_aimd", "random",
)  # fmt: skip
CASES = tuple(
    Case(
        name=f"Inception on {kind}",
        env=env,
        model="inception",
        workload="constant",
        windows=WINDOWS,
        arguments=MEAN,
    )
    for kind, env in (("CPU", CPU), ("GPU", GPU))
)
FASTER = {"capes": TIMES_FEWER, "deeprm": TIMES_FEWER}


def run(options: Options) -> Result:
    """Run every server, agent and seed."""
    found = run_cases(CASES, options, AGENTS)
    rows: list[Row] = []
    series = []
    for case in CASES:
        trials = found[case.name]
        rows += agent_rows(
            case.name,
            trials,
            {
                "windows to converge": (lambda f: f.windows_to_converge, "windows"),
                "windows not near the oracle": (lambda f: f.windows_off, "windows"),
                "mean cost above the oracle's": (lambda f: 100 * f.regret, "%"),
                "windows that broke the SLO": (lambda f: 100 * f.slo_violations, "%"),
            },
        )
        rows += _times_fewer(case.name, trials)
        series += over_time(trials, lambda t: t.expected / t.best, f"{case.name}: cost")
        series += bars(trials, lambda f: f.windows_to_converge, f"{case.name}: windows")
    configuration = {"workload": "constant", "windows": WINDOWS, "agents": list(AGENTS), **MEAN}
    return Result(experiment=NAME, seeds=options.seeds, configuration=configuration, rows=rows, series=series)


def _times_fewer(case: str, trials: Sequence[Trial]) -> list[Row]:
    """Return how many times fewer windows RRL needs than each rival, seed by seed."""
    rows = []
    ours = [f.windows_to_converge for f in of_agent(trials, AGENTS[0])]
    for rival in AGENTS[1:]:
        theirs = [f.windows_to_converge for f in of_agent(trials, rival)]
        if any(math.isnan(windows) for windows in theirs):
            continue
        ratios = [min(b, float(WINDOWS)) / a for a, b in zip(ours, theirs, strict=True)]
        never = sum(map(math.isinf, theirs))
        note = f"at least: {never} of {len(theirs)} never converged" if never else ""
        rows.append(
            row(f"{case}: times fewer windows than {rival}", ratios, published=FASTER.get(rival), note=note)
        )
    return rows


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the cost over the oracle's, window by window, and the windows to converge."""
    title = f"Windows until near the oracle, constant load; median and range of {result.seeds} seeds"
    figure, axes = style.figure(title, rows=2, columns=2, size=(12, 7.2), width_ratios=[1.1, 1.0])
    for line, case in zip(axes, CASES, strict=True):
        cost = named(result.panel(f"{case.name}: cost"))
        draw_time(line[0], cost, "exact cost over the oracle's", log=True, band=False)
        line[0].set_title(case.name, loc="right", fontsize=9)
        above(line[0])
        windows = named(result.panel(f"{case.name}: windows"))
        draw_bars(line[1], windows, "windows to converge", most=float(WINDOWS))
        line[1].set_title(f"{case.name}: windows to converge")
    return [style.save(figure, folder, NAME, colors=128)]
