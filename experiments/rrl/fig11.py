"""RRL, Fig. 11: windows to converge, and the error of what was learned, against the size of the region.

Inception and DeepSpeech on the CPU server under a constant load, with RRL's table (not the preset
``rrl_paper``, see :data:`TABLE`). With delta 0 it is
plain Q-learning: a window teaches about its own configuration alone, and nothing is estimated. Two things
are counted: the windows until the agent stays near the oracle, which a large region may never do, and the
windows in which it was not near the cost it ends with, whatever that is; the paper does not say what it
shows. An agent that explores to the end strays now and then, so the first count is close to the length of
the run, and depends on it; what is asked for is asked for by the first. There are two errors: by how much the
cost it ends with is above the oracle's, and the mean of |Q - Q*| / Q* over the configurations that it knows
anything of, where Q is the cost it learned and Q* the exact one.

Two forms more separate the region from the network that estimates within it: delta 0 with the network, which
then only predicts what was never measured, and delta 1 without, where all of a region is taken to cost what
was measured (f is the identity).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.rrl.study import CPU, MEAN, QUICK_WINDOWS, times_fewer
from tuner.laboratory.agent_run import RunSpec, serving, stage_environment, train_agent
from tuner.laboratory.figures import above
from tuner.laboratory.metrics import is_near, windows_to_converge
from tuner.report import style
from tuner.report.series import Series, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LearnedRegion", "RegionSize", "RegionTask"]

DELTAS = (0, 1, 2, 3, 4, 5)
SCHEDULE: dict[str, Any] = {"beta_first": 2.0, "beta_growth": 1.02, "beta_last": 1000.0}
"""The temperature: exploration ends slowly, within some 300 windows, and for good, with a region or without.
An agent that goes on exploring strays from the best as often with a region as without."""
TABLE: dict[str, Any] = {"perception": "table", "estimator": {"steps": 3}, **SCHEDULE}
"""Parameters of RRL with the paper's table. The network takes 3 steps per window rather than 30: ten times as
fast, and it has many windows here."""
WINDOWS = {0: 3000}
"""Length of a run by delta, windows; Q-learning (0) has to try all 1,331 configurations."""
OTHERS = 1500
"""Length of a run with any other delta, windows."""
NETWORK, IDENTITY = " with the network", ", f = identity"
"""The forms that separate the region from the network."""
UNTRAINED = {"estimator": {"hidden": [1], "minimum_samples": 1_000_000, "memory": 1}}
"""Parameters with which nothing is estimated: every configuration of a region costs what was measured."""
MODELS = {"inception": "Inception", "deepspeech": "DeepSpeech"}
FASTER = 5.0
"""How many times faster RRL with delta 1 converges than Q-learning (section 6.2)."""
END = 0.1
"""Share of the windows whose mean is the cost that an agent ends with."""


class RegionTask(NamedTuple):
    """A model that is learned with a region."""

    model: str
    delta: int
    form: str = ""
    """What is added to the name; empty for the paper's: a network from delta 1 on."""

    @property
    def label(self) -> str:
        """The name in the rows."""
        return f"{MODELS[self.model]}, delta {self.delta}{self.form}"


class LearnedRegion(NamedTuple):
    """What a training with a region came to."""

    away: float
    """Windows whose running mean cost was not near the cost that the agent ends with."""
    converged: float
    """Window from which on it stayed near the oracle; infinite if it never did."""
    end: float
    """Mean exact cost of the last windows over the oracle's."""
    error: float
    """Mean of |Q - Q*| / Q*."""
    known: int
    """Configurations that anything was learned about."""


@experiment(
    name="rrl-fig11",
    title="Windows to converge, and the error of what was learned, against the size of the region",
    paper="RRL",
    minutes=30,
)
class RegionSize(Experiment[RegionTask, LearnedRegion]):
    """Trains on every model with every region."""

    def tasks(self) -> list[RegionTask]:
        return [
            task
            for model in MODELS
            for task in (
                *[RegionTask(model, delta) for delta in DELTAS],
                RegionTask(model, 0, NETWORK),
                RegionTask(model, 1, IDENTITY),
            )
        ]

    def measure(self, task: RegionTask, seed: int) -> LearnedRegion:
        return learned(self._spec(task, seed))

    def rows(self, found: Answers[RegionTask, LearnedRegion]) -> Iterator[Row]:
        rows: list[Row] = []
        for task, values in found.items():
            rows += _rows(task.label, values)
            base = RegionTask(task.model, 0)
            if task != base:
                rows += [_away_ratio(task, found[base], values), _convergence_ratio(rows, task, base)]
        yield from rows

    def series(self, found: Answers[RegionTask, LearnedRegion]) -> Iterator[Series]:
        for model, label in MODELS.items():
            for panel, scale in (("away", 1.0), ("end", 100.0), ("error", 100.0)):
                points = [
                    [scale * getattr(value, panel) for value in found[RegionTask(model, delta)]]
                    for delta in DELTAS
                ]
                yield curve(label, DELTAS, points, panel=panel)

    def configuration(self) -> dict[str, Any]:
        return {
            "env": CPU,
            "workload": "constant",
            "windows": [WINDOWS.get(delta, OTHERS) for delta in DELTAS],
            "deltas": list(DELTAS),
            "parameters": TABLE,
            "without the network": UNTRAINED,
        }

    def _spec(self, task: RegionTask, seed: int) -> RunSpec:
        windows = QUICK_WINDOWS if self.options.quick else WINDOWS.get(task.delta, OTHERS)
        return RunSpec(
            env=CPU,
            arguments={"model": task.model, **MEAN},
            workload="constant",
            agent="rrl" if task.delta or task.form else "q_learning",
            parameters=_parameters(task),
            seed=seed,
            windows=windows,
        )

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw windows and error against delta."""
        title = f"The size of the region; median and range of {result.seeds} seeds"
        figure, axes = style.figure(title, columns=4, size=(15, 3.8))
        labels = {
            "away": "windows away from its end",
            "converged": "windows to converge",
            "end": "cost at the end above the oracle's, %",
            "error": "mean |Q - Q*| / Q*, %",
        }
        for axis, (panel, label) in zip(axes.flat, labels.items(), strict=True):
            axis.set(xlabel="delta, grid steps", ylabel=label)
            if panel == "converged":
                _draw_converged(axis, result)
            else:
                style.curves(axis, result.panel(panel))
            axis.set_ylim(bottom=0)
            above(axis)
        return [style.Drawing(figure, colors=128)]


def _parameters(task: RegionTask) -> dict[str, Any]:
    if not task.delta and not task.form:
        return SCHEDULE
    return {"delta": float(task.delta), **TABLE, **(UNTRAINED if task.form == IDENTITY else {})}


def _rows(name: str, values: list[LearnedRegion]) -> list[Row]:
    return [
        row(f"{name}: windows away from its end", [v.away for v in values], unit="windows"),
        row(f"{name}: windows to converge", [v.converged for v in values], unit="windows"),
        row(f"{name}: cost at the end above the oracle's", [100 * v.end for v in values], unit="%"),
        row(f"{name}: error against the optimal Q", [100 * v.error for v in values], unit="%"),
        row(f"{name}: configurations known", [float(v.known) for v in values]),
    ]


def _away_ratio(task: RegionTask, slow: list[LearnedRegion], fast: list[LearnedRegion]) -> Row:
    """Return how many times fewer windows than Q-learning it is away from its final cost, seed by seed."""
    ratios = [a.away / max(b.away, 1.0) for a, b in zip(slow, fast, strict=True)]
    found = row(f"{task.label}: times fewer windows away from its end than delta 0", ratios)
    return _beside_target(found) if _has_target(task) else found


def _has_target(task: RegionTask) -> bool:
    """Whether the paper says how much faster the task converges than Q-learning."""
    return task.delta == 1 and not task.form


def _beside_target(found: Row) -> Row:
    """Return a row beside the paper's factor, with a note whether it is reached."""
    met = found.measured is not None and found.measured >= FASTER
    note = f"seed by seed; at least {FASTER:g} asked for: {'reached' if met else 'missed'}"
    return found.model_copy(update={"published": FASTER, "note": note})


def _convergence_ratio(rows: Sequence[Row], task: RegionTask, base: RegionTask) -> Row:
    """Return how many times fewer windows than Q-learning it needs to converge, by the medians in rows."""
    converged = {row.id: row.measured for row in rows}
    return times_fewer(
        f"{task.label}: times fewer windows to converge than delta 0",
        converged[f"{base.label}: windows to converge"],
        converged[f"{task.label}: windows to converge"],
        windows=WINDOWS[0],
        least=FASTER if _has_target(task) else None,
    )


def learned(spec: RunSpec) -> LearnedRegion:
    """Train once, and compare what was learned with the exact costs."""
    agent, trial = train_agent(spec)
    levels, counts = np.unique(trial.level, return_counts=True)
    costs = agent.costs(int(levels[np.argmax(counts)]))
    agent.close()
    env = stage_environment(spec)
    exact = serving(env).expected_costs(float(np.median(trial.rate)))
    env.close()
    known = np.isfinite(costs)
    last = trial.expected[-max(int(END * len(trial.expected)), 1) :].mean()
    return LearnedRegion(
        away=float(np.count_nonzero(~is_near(trial.expected, np.full(len(trial.expected), last)))),
        converged=windows_to_converge(trial.expected, trial.best),
        end=float(last / trial.best.mean() - 1.0),
        error=float(np.mean(np.abs(costs[known] - exact[known]) / exact[known])),
        known=int(known.sum()),
    )


def _draw_converged(axis: Axes, result: Result) -> None:
    """Draw windows to converge: a seed that never does counts as the whole run; such a median is hollow."""
    found = {row.id: row for row in result.rows}
    runs = [float(WINDOWS.get(delta, OTHERS)) for delta in DELTAS]
    drawn = []
    for label in MODELS.values():
        rows = [found[f"{label}, delta {delta}: windows to converge"] for delta in DELTAS]
        high: list[float | None] = [
            run if row.high is None else row.high for row, run in zip(rows, runs, strict=True)
        ]
        low: list[float | None] = [
            run if row.low is None else row.low for row, run in zip(rows, runs, strict=True)
        ]
        drawn.append(Series(name=label, x=list(DELTAS), y=[row.measured for row in rows], low=low, high=high))
    style.curves(axis, drawn)
    for index, one in enumerate(drawn):
        color, marker = style.look(one.name, index)
        never = [(x, run) for x, y, run in zip(one.x, one.y, runs, strict=True) if y is None]
        x = [place + 0.24 * index - 0.12 for place, _ in never]  # beside each other
        axis.plot(x, [run for _, run in never], marker, color=color, ms=6, mfc="none")
    axis.set_xlabel("delta, grid steps; hollow: half or more never")
