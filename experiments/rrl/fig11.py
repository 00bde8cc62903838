"""RRL, Fig. 11: windows to converge, and the error of what was learned, against the size of the region.

Inception and DeepSpeech on the CPU server under a constant load. With delta 0 RRL is plain Q-learning: a
window teaches about its own configuration alone. The error is the mean of |Q - Q*| / Q* over the
configurations that the agent knows anything of, at the load level it has seen most; Q is what it learned
of the cost of one window, Q* the exact cost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.experiments import style
from tuner.experiments.options import Options
from tuner.experiments.parallel import run_all
from tuner.experiments.result import Result, Row, curve, row
from tuner.experiments.rrl.figures import above
from tuner.experiments.rrl.study import CPU, MEAN, Case
from tuner.laboratory.metrics import figures_of
from tuner.laboratory.trial import TrialSpec, serving, stage_environment, train_agent

__all__ = ["plot", "run"]

NAME = "rrl-fig11"
DELTAS = (0, 1, 2, 3, 4, 5)
FORM = "rrl_paper"
"""The form of the algorithm: the paper's own."""
WINDOWS = 3000
MODELS = {"inception": "Inception", "deepspeech": "DeepSpeech"}
FASTER = 5.0
"""By which RRL with delta 1 converges faster than Q-learning (section 6.2)."""


class Task(NamedTuple):
    """One training."""

    spec: TrialSpec
    model: str
    delta: int


class Found(NamedTuple):
    """What it came to."""

    windows: float
    """To converge; infinite if it never did."""
    off: float
    """Windows not near the oracle."""
    error: float
    known: int
    """Configurations that anything was learned about."""


def run(options: Options) -> Result:
    """Run every model, region and seed."""
    tasks = [task for seed in range(options.seeds) for task in _tasks(seed, quick=options.quick)]
    found = dict(
        zip(_keys(tasks), run_all(measure, tasks, options, "models, regions and seeds"), strict=True)
    )
    rows: list[Row] = []
    series = []
    for model, label in MODELS.items():
        of = {d: [v for (m, delta, _), v in found.items() if (m, delta) == (model, d)] for d in DELTAS}
        for delta, values in of.items():
            name = f"{label}, delta {delta}"
            rows += [
                row(f"{name}: windows to converge", [v.windows for v in values], unit="windows"),
                row(f"{name}: windows not near the oracle", [v.off for v in values], unit="windows"),
                row(f"{name}: error against the optimal Q", [100 * v.error for v in values], unit="%"),
                row(f"{name}: configurations known", [float(v.known) for v in values]),
            ]
            if delta:
                ratios = [_ratio(a.windows, b.windows) for a, b in zip(of[0], values, strict=True)]
                paper = FASTER if delta == 1 else None
                note = (
                    "where delta 0 never converged, at least"
                    if any(math.isinf(a.windows) for a in of[0])
                    else ""
                )
                rows.append(row(f"{name}: times faster than delta 0", ratios, published=paper, note=note))
        series.append(curve(label, DELTAS, [[v.windows for v in of[d]] for d in DELTAS], panel="windows"))
        series.append(curve(label, DELTAS, [[v.off for v in of[d]] for d in DELTAS], panel="off"))
        series.append(curve(label, DELTAS, [[100 * v.error for v in of[d]] for d in DELTAS], panel="error"))
    configuration = {
        "env": CPU,
        "workload": "constant",
        "agent": FORM,
        "windows": WINDOWS,
        "deltas": list(DELTAS),
    }
    return Result(experiment=NAME, seeds=options.seeds, configuration=configuration, rows=rows, series=series)


def _tasks(seed: int, *, quick: bool) -> list[Task]:
    tasks = []
    for model in MODELS:
        case = Case(name=model, env=CPU, model=model, workload="constant", windows=WINDOWS, arguments=MEAN)
        for delta in DELTAS:
            spec = replace(case.spec(FORM, seed, quick=quick), parameters={"delta": float(delta)})
            tasks.append(Task(spec, model, delta))
    return tasks


def _keys(tasks: list[Task]) -> list[tuple[str, int, int]]:
    return [(task.model, task.delta, task.spec.seed) for task in tasks]


def _ratio(slow: float, fast: float) -> float:
    """How much faster; where the slow one never converged, what it took at least."""
    return min(slow, float(WINDOWS)) / fast


def measure(task: Task) -> Found:
    """Train once, and compare what was learned with the exact costs."""
    agent, trial = train_agent(task.spec)
    levels, counts = np.unique(trial.level, return_counts=True)
    learned = agent.costs(int(levels[np.argmax(counts)]))
    agent.close()
    env = stage_environment(task.spec)
    exact = serving(env).expected_costs(float(np.median(trial.rate)))
    env.close()
    known = np.isfinite(learned)
    error = float(np.mean(np.abs(learned[known] - exact[known]) / exact[known]))
    figures = figures_of(trial)
    return Found(figures.windows_to_converge, figures.windows_off, error, int(known.sum()))


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw windows and error against delta."""
    title = f"The size of the region; median and range of {result.seeds} seeds"
    figure, axes = style.figure(title, columns=3, size=(13, 3.8))
    labels = {
        "windows": f"windows to converge, of {WINDOWS:,}",
        "off": "windows not near the oracle",
        "error": "mean |Q - Q*| / Q*, %",
    }
    for axis, (panel, label) in zip(axes.flat, labels.items(), strict=True):
        style.curves(axis, result.panel(panel))
        axis.set(xlabel="delta, grid steps", ylabel=label, ylim=(0, None))
        above(axis)
    return [style.save(figure, folder, NAME)]
