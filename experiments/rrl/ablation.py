"""What each part of RRL beyond the paper is worth: switched off (or on) one at a time.

Inception V3 on the CPU server under the paper's dynamic load; and a drift: half way DeepSpeech
replaces the served model under the same load, and the agent does not know it. All have the same windows and
arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.study import CPU, MEAN, QUICK_WINDOWS, figure_rows
from tuner.experiments.rrl.warm import with_wrong_prior
from tuner.laboratory.agent_run import AgentRun, RunSpec, new_agent, train_agent
from tuner.laboratory.metrics import figures_of
from tuner.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tuner.agents.agent import Agent

__all__ = ["VARIANTS", "Ablation", "AblationTask"]

WINDOWS = 300
ERROR = 0.1
"""Of the simulation that says what to expect, see :mod:`tuner.experiments.rrl.warm`."""
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "all as shipped": ("rrl", {}),
    "no neural estimator": ("rrl", {"prior": "none"}),
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
SHOWN = ("windows to converge", "windows not near the oracle", "mean cost", "windows that broke the SLO")


class AblationTask(NamedTuple):
    """A variant of RRL in a scenario."""

    drift: bool
    variant: str


@experiment(
    name="rrl-ablation",
    title="What each part of RRL beyond the paper is worth, switched off one at a time",
    paper="RRL",
    minutes=20,
)
class Ablation(Experiment[AblationTask, AgentRun]):
    """Every variant in both scenarios."""

    windows = Scaled(WINDOWS, quick=QUICK_WINDOWS)

    def tasks(self) -> list[AblationTask]:
        # A prior needs exact costs, which a quick run does without.
        names = [name for name in VARIANTS if not (self.options.quick and name == "with a prior")]
        return [AblationTask(drift, name) for drift in (False, True) for name in names]

    def measure(self, task: AblationTask, seed: int) -> AgentRun:
        """Run one variant; of a drift, return what came after it."""
        make = _informed if task.variant == "with a prior" else None
        agent, run = train_agent(self._spec(task, seed, "inception"), make=make)
        if task.drift:
            _, run = train_agent(self._spec(task, seed, "deepspeech"), make=lambda *_: agent)
        agent.close()
        return run

    def rows(self, found: Answers[AblationTask, AgentRun]) -> Iterator[Row]:
        for (drift, name), runs in found.items():
            yield from figure_rows(f"{SCENARIOS[drift]}, {name}", [figures_of(run) for run in runs], SHOWN)

    def configuration(self) -> dict[str, Any]:
        return {"windows": WINDOWS, "error of the prior": ERROR, **MEAN}

    def _spec(self, task: AblationTask, seed: int, model: str) -> RunSpec:
        """The run of one served model."""
        agent, parameters = VARIANTS[task.variant]
        return RunSpec(
            env=CPU,
            arguments={"model": model, **MEAN},
            workload="constant" if task.drift else "dynamic",
            agent=agent,
            parameters=dict(parameters),
            seed=seed,
            windows=self.windows,
            exact=not self.options.quick,
        )

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
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
        return [style.Drawing(figure, colors=64)]


def _informed(spec: RunSpec, env: Any) -> Agent:
    return with_wrong_prior(new_agent(spec, env), spec, env, ERROR)


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
