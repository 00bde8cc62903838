"""What the figures of latency over time share: RRL's Figs. 12 (CPU) and 13 (GPU)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from tuner.experiments.frame.result import Result, Row
from tuner.experiments.rrl.study import (
    DYNAMIC_WINDOWS,
    MEAN,
    TIMES_FEWER,
    WIKI_WINDOWS,
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

__all__ = ["LatencyStudy", "latency_cases"]

SHOWN = (
    "mean latency",
    "windows to converge",
    "windows not near the oracle",
    "mean cost above the oracle's",
)


class LatencyStudy(AgentStudy):
    """An experiment that compares mean latencies over time."""

    published: ClassVar[Mapping[str, Mapping[str, float | None]]]
    """By how many per cent RRL's mean latency is below each rival's, by case (sections 6.3 and 6.4)."""
    server: ClassVar[str]
    """What the cases run on."""

    def case_rows(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Row]:
        """Return relations, the figures of each agent, and how many times fewer windows RRL needs."""
        published = self.published[case.name]
        yield from relation_rows(case.name, runs, "mean latency", published)
        rows = agent_rows(case.name, runs, SHOWN)
        yield from rows
        for what in ("windows not near the oracle", "windows to converge"):
            yield from fewer_rows(case.name, rows, what, case.windows, TIMES_FEWER)

    def case_series(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterator[Series]:
        """Return latency and load over time."""
        yield from over_time(runs, lambda t: 1e3 * t.shown["mean"], f"{case.name}: latency")
        yield from over_time(runs[:1], lambda t: t.rate, f"{case.name}: load")

    @classmethod
    def draw(cls, result: Result) -> list[style.Drawing]:
        """Draw as in the paper: a column for each load, the load on top, each model's latency below."""
        loads = list(dict.fromkeys(case.workload for case in cls.cases))
        models = list(dict.fromkeys(case.model for case in cls.cases))
        figure, axes = style.figure(
            f"Mean latency on the {cls.server} server; median and range of {result.seeds} seeds",
            rows=1 + len(models),
            columns=len(loads),
            size=(11, 2.2 + 2.9 * len(models)),
            height_ratios=[0.6, *[1.0] * len(models)],
        )
        for case in cls.cases:
            column, line = loads.index(case.workload), 1 + models.index(case.model)
            panel = axes[line, column]
            draw_time(panel, named(result.panel(f"{case.name}: latency")), "mean latency, ms", log=True)
            panel.set_title(case.name, loc="right", fontsize=9)
            above(panel)
            for one in result.panel(f"{case.name}: load"):
                axes[0, column].plot(one.x, one.y, color=style.MUTED, lw=1.2)
            axes[0, column].set(title=f"load, {case.workload}", ylabel="requests/s", ylim=(0, None))
        return [style.Drawing(figure, colors=64)]


def latency_cases(env: str, models: Mapping[str, str]) -> tuple[LearningCase, ...]:
    """Return both loads for each model of a server.

    Args:
        env: The server.
        models: Under the names that cases have of them.
    """
    return tuple(
        LearningCase(
            name=f"{label}, {load}",
            env=env,
            model=model,
            workload=workload,
            windows=windows,
            arguments=MEAN,
        )
        for label, model in models.items()
        for workload, load, windows in (
            ("wikipedia", "WiKi", WIKI_WINDOWS),
            ("dynamic", "Dynamic", DYNAMIC_WINDOWS),
        )
    )
