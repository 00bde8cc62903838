"""What the figures of latency over time share: RRL's Figs. 12 (CPU) and 13 (GPU)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.study import (
    TIMES_FEWER,
    AgentStudy,
    LearningCase,
    agent_rows,
    fewer_rows,
    named,
    relation_rows,
)
from tuner.laboratory.agent_run import AgentRun
from tuner.laboratory.curves import over_time
from tuner.laboratory.figures import above, draw_time
from tuner.report import style
from tuner.report.series import Series

__all__ = ["LatencyStudy", "draw_latencies"]


class LatencyStudy(AgentStudy):
    """An experiment that compares mean latencies over time."""

    published: ClassVar[Mapping[str, Mapping[str, float | None]]]
    """By how many per cent RRL's mean latency is below each rival's, by case."""

    def case_rows(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Row]:
        """Return relations, the figures of each agent, and how many times fewer windows RRL needs."""
        published = self.published[case.name]
        yield from relation_rows(case.name, runs, lambda f: f.mean_latency, "mean latency", published)
        rows = agent_rows(
            case.name,
            runs,
            {
                "mean latency": (lambda f: 1e3 * f.mean_latency, "ms"),
                "windows to converge": (lambda f: f.windows_to_converge, "windows"),
                "windows not near the oracle": (lambda f: f.windows_off, "windows"),
                "mean cost above the oracle's": (lambda f: 100 * f.regret, "%"),
            },
        )
        yield from rows
        for what in ("windows not near the oracle", "windows to converge"):
            yield from fewer_rows(case.name, rows, what, case.windows, TIMES_FEWER)

    def case_series(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Series]:
        """Return latency and load over time."""
        yield from over_time(runs, lambda t: 1e3 * t.shown["mean"], f"{case.name}: latency")
        yield from over_time(runs[:1], lambda t: t.rate, f"{case.name}: load")

    def configuration(self) -> dict[str, Any]:
        """Return cases, windows, agents and the objective."""
        return {
            "cases": [f"{case.env} {case.model} {case.workload}" for case in self.cases],
            "windows": [case.windows for case in self.cases],
            "agents": list(self.agents),
            "objective": "latency",
        }


def draw_latencies(result: Result, cases: Sequence[LearningCase], folder: Path, title: str) -> list[Path]:
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
