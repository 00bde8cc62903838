"""What each part of RRL beyond the paper is worth: switched off (or on) one at a time.

Inception V3 on the CPU server under the paper's dynamic load; and a drift: half way the served model is
replaced by DeepSpeech under the same load, which the agent is not told. All have the same windows and
arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.rrl.study import CPU, MEAN, QUICK_WINDOWS
from tuner.experiments.rrl.warm import told
from tuner.laboratory.metrics import Figures, figures_of
from tuner.laboratory.trial import Trial, TrialSpec, new_agent, train_agent
from tuner.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tuner.agents.agent import Agent

__all__ = ["VARIANTS", "plot", "run"]

NAME = "rrl-ablation"
WINDOWS = 300
ERROR = 0.1
"""Of the simulation that says what to expect, see :mod:`tuner.experiments.rrl.warm`."""
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "all as shipped": ("rrl", {}),
    "reach not fitted": ("rrl", {"smoothing": {"adaptive": False}}),
    "no carrying between loads": ("rrl", {"carry": False}),
    "drift not detected": ("rrl", {"detect_drift": False}),
    "with caution": ("rrl", {"caution": 1.0}),
    "with a prior": ("rrl", {}),
    "the paper's form": ("rrl_paper", {}),
}
"""Name -> agent and parameters."""
SCENARIOS = ("dynamic load", "after the model was replaced")
"""Without a drift, and with one."""
MEASURED: Mapping[str, tuple[Callable[[Figures], float], str]] = {
    "windows to converge": (lambda f: f.windows_to_converge, "windows"),
    "windows not near the oracle": (lambda f: f.windows_off, "windows"),
    "mean cost": (lambda f: f.mean_cost, "of the SLO"),
    "windows that broke the SLO": (lambda f: 100 * f.slo_violations, "%"),
}


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    variant: str
    drift: bool
    seed: int
    quick: bool

    def spec(self, model: str) -> TrialSpec:
        """The trial of one served model."""
        agent, parameters = VARIANTS[self.variant]
        return TrialSpec(
            env=CPU,
            arguments={"model": model, **MEAN},
            workload="constant" if self.drift else "dynamic",
            agent=agent,
            parameters=dict(parameters),
            seed=self.seed,
            windows=QUICK_WINDOWS if self.quick else WINDOWS,
            exact=not self.quick,
        )


def run(options: Options) -> Result:
    """Run every variant, scenario and seed."""
    names = [name for name in VARIANTS if not (options.quick and name == "with a prior")]
    tasks = [
        Task(name, drift, seed, options.quick)
        for seed in range(options.seeds)
        for drift in (False, True)
        for name in names
    ]
    trials = options.run_all(try_one, tasks, "variants, scenarios and seeds")
    rows: list[Row] = []
    for drift, scenario in enumerate(SCENARIOS):
        for name in names:
            pairs = zip(tasks, trials, strict=True)
            of = [t for task, t in pairs if (task.variant, task.drift) == (name, drift)]
            rows += _rows(f"{scenario}, {name}", of)
    configuration = {"windows": WINDOWS, "error of the prior": ERROR, **MEAN}
    return Result(experiment=NAME, seeds=options.seeds, configuration=configuration, rows=rows)


def try_one(task: Task) -> Trial:
    """Run one variant; of a drift, return what came after it."""
    make = _told if task.variant == "with a prior" else None
    agent, trial = train_agent(task.spec("inception"), make=make)
    if task.drift:
        _, trial = train_agent(task.spec("deepspeech"), make=lambda *_: agent)
    agent.close()
    return trial


def _told(spec: TrialSpec, env: Any) -> Agent:
    return told(new_agent(spec, env), spec, env, ERROR)


def _rows(name: str, trials: Sequence[Trial]) -> list[Row]:
    figures = [figures_of(trial) for trial in trials]
    rows = []
    for what, (value, unit) in MEASURED.items():
        numbers = [value(f) for f in figures]
        if not np.isnan(numbers).all():
            rows.append(row(f"{name}: {what}", numbers, unit=unit))
    return rows


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw, for both scenarios, how long each variant was off the oracle and what it cost."""
    title = f"RRL with one part switched; median and range of {result.seeds} seeds"
    figure, axes = style.figure(title, rows=2, columns=2, size=(10.5, 6.2), sharey=True)
    found = {row.id: row for row in result.rows}
    names = list(VARIANTS)
    for line, scenario in zip(axes, SCENARIOS, strict=True):
        for axis, what in zip(line, ("windows not near the oracle", "mean cost"), strict=True):
            rows = [found.get(f"{scenario}, {name}: {what}") for name in names]
            middles = style.floats(row.measured if row else None for row in rows)
            low = middles - style.floats(row.low if row else None for row in rows)
            high = style.floats(row.high if row else None for row in rows) - middles
            colors = [style.look("rrl", index).color for index in range(len(names))]
            if what == "mean cost":
                _draw_costs(axis, names, middles, np.nan_to_num([low, high]), colors)
                axis.set_xlabel(f"{what}, of the SLO, logarithmic, {scenario}")
                continue
            bars = axis.barh(
                names, np.nan_to_num(middles), xerr=np.nan_to_num([low, high]), color=colors, height=0.7
            )
            axis.bar_label(bars, [f" {value:.3g}" for value in middles], fontsize=8, padding=3)
            axis.set_xlabel(f"{what}, {scenario}")
            axis.grid(axis="y", visible=False)
    axes[0, 0].invert_yaxis()  # all share it
    return [style.save(figure, folder, NAME, colors=64)]


def _draw_costs(
    axis: Axes, names: list[str], middles: np.ndarray, spread: np.ndarray, colors: list[str]
) -> None:
    """Draw medians as dots and ranges as lines: a logarithmic axis has no 0 for bars to begin at."""
    for place, (middle, color) in enumerate(zip(middles, colors, strict=True)):
        if not np.isfinite(middle):
            continue
        axis.errorbar([middle], [place], xerr=spread[:, [place]], color=color, marker="o", ms=6, lw=1.6)
        axis.annotate(
            f"{middle:.3g}", (middle, place), (0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    axis.set_xscale("log")
    style.decades(axis.xaxis)
    axis.set_yticks(range(len(names)), names)
    axis.grid(axis="x", color=style.MUTED, alpha=0.25, lw=0.6)
