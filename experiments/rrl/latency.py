"""What the figures of latency over time share: RRL's Figs. 12 (CPU) and 13 (GPU)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.study import (
    AGENTS,
    TIMES_FEWER,
    Case,
    agent_rows,
    fewer_rows,
    named,
    relation_rows,
    run_cases,
)
from tuner.laboratory.curves import over_time
from tuner.laboratory.figures import above, draw_time
from tuner.report import style

__all__ = ["draw_latencies", "latency_result"]


def latency_result(
    name: str,
    cases: Sequence[Case],
    published: Mapping[str, Mapping[str, float | None]],
    options: Options,
) -> Result:
    """Run the cases and compare mean latencies.

    Args:
        name: Of the experiment.
        cases: The panels.
        published: Per cent below each rival, by case.
        options: As every experiment.
    """
    found = run_cases(cases, options)
    rows: list[Row] = []
    series = []
    for case in cases:
        trials = found[case.name]
        rows += relation_rows(
            case.name, trials, lambda f: f.mean_latency, "mean latency", published[case.name]
        )
        rows += agent_rows(
            case.name,
            trials,
            {
                "mean latency": (lambda f: 1e3 * f.mean_latency, "ms"),
                "windows to converge": (lambda f: f.windows_to_converge, "windows"),
                "windows not near the oracle": (lambda f: f.windows_off, "windows"),
                "mean cost above the oracle's": (lambda f: 100 * f.regret, "%"),
            },
        )
        for what in ("windows not near the oracle", "windows to converge"):
            rows += fewer_rows(case.name, rows, what, case.windows, TIMES_FEWER)
        series += over_time(trials, lambda t: 1e3 * t.shown["mean"], f"{case.name}: latency")
        series += over_time(trials[:1], lambda t: t.rate, f"{case.name}: load")
    configuration = {
        "cases": [f"{case.env} {case.model} {case.workload}" for case in cases],
        "windows": [case.windows for case in cases],
        "agents": list(AGENTS),
        "objective": "latency",
    }
    return Result(experiment=name, seeds=options.seeds, configuration=configuration, rows=rows, series=series)


def draw_latencies(result: Result, cases: Sequence[Case], folder: Path, title: str) -> list[Path]:
    """Draw the load on top, below it the latency of each model; a column for each load."""
    loads = list(dict.fromkeys(case.workload for case in cases))
    models = list(dict.fromkeys(case.model for case in cases))
    figure, axes = style.figure(
        f"{title}; median and range of {result.seeds} seeds", rows=1 + len(models), columns=len(loads),
        size=(11, 2.2 + 2.9 * len(models)), height_ratios=[0.6, *[1.0] * len(models)],
    )  # fmt: skip
    for case in cases:
        column, line = loads.index(case.workload), 1 + models.index(case.model)
        panel = axes[line, column]
        draw_time(panel, named(result.panel(f"{case.name}: latency")), "mean latency, ms", log=True)
        panel.set_title(case.name, loc="right", fontsize=9)
        above(panel)
        for one in result.panel(f"{case.name}: load"):
            axes[0, column].plot(one.x, one.y, color=style.MUTED, lw=1.2)
        axes[0, column].set(title=f"load, {case.workload}", ylabel="requests/s", ylim=(0, None))
    return [style.save(figure, folder, result.experiment, colors=64)]
