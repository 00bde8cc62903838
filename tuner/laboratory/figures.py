"""Draws how agents compare: cost over time, windows to near the best, tails, broken SLOs, resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tuner.laboratory.agent_run import AgentRun
from tuner.laboratory.curves import bars, exceeding, over_time
from tuner.report import style
from tuner.report.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["above", "comparison_figures", "draw_bars", "draw_ccdf", "draw_time"]

FLOOR = 0.02
"""% of the windows that distributions are drawn down to: less than one window of 3,000."""
HATCHES = {"-": None, "--": "//", ":": "..", "-.": "xx"}
"""What stands in a bar for the dashes of a line."""
WIDE = 8.0
"""Ratio of the greatest to the least value from which on an axis is logarithmic."""


def comparison_figures(
    runs: Sequence[AgentRun], folder: Path, name: str = "comparison", *, form: str = "png"
) -> list[Path]:
    """Draw runs of the same load under several agents.

    Args:
        runs: Of equal length.
        folder: Where the figures go.
        name: What their files begin with.
        form: ``png``, ``svg`` or ``pdf``.

    Returns:
        The files.
    """
    first = runs[0]
    where = style.plain(f"{first.spec.env.removeprefix('tuner/')} {first.spec.workload or ''}".strip())
    latency = first.slo.statistic if first.slo.statistic in ("mean", "p99") else "p95"
    drawn = []

    figure, axes = style.figure(f"Cost over time, {where}", size=(7.5, 3.8))
    draw_time(axes[0, 0], over_time(runs, lambda t: t.cost), "cost, running mean")
    if np.isfinite(first.best).any():
        best = over_time(runs, lambda t: t.best)[0]  # all agents meet the same loads
        axes[0, 0].plot(best.x, best.y, color=style.MUTED, ls="--", lw=1, label="oracle, exact")
    above(axes[0, 0])
    drawn.append(style.save(figure, folder, f"{name}-cost", form=form))

    if np.isfinite(first.best).any():
        figure, axes = style.figure(f"Windows until near the oracle for good, {where}", size=(6.5, 3.6))
        series = bars(runs, lambda f: f.windows_to_converge)
        draw_bars(axes[0, 0], series, "windows", most=float(len(first.cost)))
        drawn.append(style.save(figure, folder, f"{name}-convergence", form=form))

    figure, axes = style.figure(f"Windows whose {latency} exceeded a latency, {where}", size=(6, 3.8))
    draw_ccdf(axes[0, 0], exceeding(runs, lambda t: t.shown[latency]), first.slo.latency)
    above(axes[0, 0])
    drawn.append(style.save(figure, folder, f"{name}-ccdf", form=form))

    figure, axes = style.figure(f"Windows that broke the SLO ({first.slo}), {where}", size=(6.5, 3.6))
    draw_bars(axes[0, 0], bars(runs, lambda f: 100 * f.slo_violations), "% of the windows")
    drawn.append(style.save(figure, folder, f"{name}-slo", form=form))

    gpu = bool(np.isfinite(first.shown["gpu"]).any())
    figure, axes = style.figure(f"Resources in use, {where}", size=(7.5, 3.8))
    draw_time(
        axes[0, 0],
        over_time(runs, lambda t: t.shown["gpu" if gpu else "cpu"]),
        "share of the GPU" if gpu else "cores",
    )
    above(axes[0, 0])
    drawn.append(style.save(figure, folder, f"{name}-resources", form=form))
    return drawn


def draw_time(
    panel: Axes, series: Sequence[Series], label: str, *, log: bool | None = None, band: bool = True
) -> None:
    """Draw curves over the windows, the spread over seeds as a band.

    Args:
        panel: Where.
        series: One per agent.
        label: Of the vertical axis.
        log: Whether that is logarithmic; None where the values are wide apart.
        band: Whether the spread is drawn.
    """
    for one, (color, line) in zip(series, style.strokes([one.name for one in series]), strict=True):
        low, middle, high = (style.floats(values or one.y) for values in (one.low, one.y, one.high))
        panel.plot(one.x, middle, color=color, ls=line, lw=1.3, label=one.name)
        if band:
            panel.fill_between(one.x, low, high, color=color, alpha=0.16, lw=0)
    values = np.concatenate([style.floats(one.y) for one in series])
    values = values[np.isfinite(values) & (values > 0)]
    if log or (log is None and values.size and values.max() > WIDE * values.min()):
        panel.set_yscale("log")
        style.decades(panel.yaxis)
    else:
        panel.set_ylim(bottom=0)
    panel.set(xlabel="window", ylabel=label)


def above(panel: Axes) -> None:
    """Put the legend above a panel, where it hides nothing, in at most two rows if it is short."""
    names = len(panel.get_legend_handles_labels()[1])
    columns = 3 if 4 < names <= 6 else 4
    style.legend(panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.1)


def draw_bars(panel: Axes, series: Sequence[Series], label: str, *, most: float | None = None) -> None:
    """Draw one figure per agent: the median as a bar, from the least to the greatest as a line.

    The names stand on the left and the medians on the right, where they hide nothing. Where a line
    ends at the edge, some seeds never got there; where a line has no bar, half of them or more never did.

    Args:
        panel: Where.
        series: One per agent, as :func:`~tuner.laboratory.curves.bars` makes them.
        label: Of the horizontal axis.
        most: Where the axis ends, such as the length of a run; None to end it at the greatest value.
    """
    known = [value for one in series for value in (one.y[0], one.low[0], one.high[0]) if value]
    edge = 1.05 * max(known, default=1.0) if most is None else most
    panel.set_xlim(0, edge)
    names = [one.name for one in series]
    for one, (color, line) in zip(series, style.strokes(names), strict=True):
        place, middle, low, high = one.x[0], one.y[0], one.low[0], one.high[0]
        if middle is not None:
            panel.barh(place, middle, 0.65, color=color, hatch=HATCHES[line], edgecolor="white")
        if low is not None:
            panel.plot([low, edge if high is None else high], [place, place], color=style.INK, lw=1.2)
            panel.plot([low], [place], color=style.INK, marker="|", ms=5)
        panel.annotate(
            _summary(middle, low, high, most), (1.0, place), (5, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", fontsize=8, color=style.INK,
        )  # fmt: skip
    panel.set_yticks([one.x[0] for one in series], names)
    panel.set_ylim(len(series) - 0.4, -0.6)  # the first on top, also where nobody has a bar
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", color=style.MUTED, alpha=0.25, lw=0.6)
    panel.set_xlabel(label)


def _summary(middle: float | None, low: float | None, high: float | None, most: float | None) -> str:
    """What stands beside a bar: the median, or how many seeds have none."""
    within = "" if most is None else f" within {most:,g}"
    if low is None:
        return f"none{within}"
    if middle is None:
        return f"half or more not{within}"
    text = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
    return text if high is not None else f"{text}; some not{within}"


def draw_ccdf(panel: Axes, series: Sequence[Series], slo: float) -> None:
    """Draw shares that exceed a latency, both axes logarithmic, the SLO as a dashed line (s)."""
    for one, (color, line) in zip(series, style.strokes([one.name for one in series]), strict=True):
        low, middle, high = (100 * style.floats(values or one.y) for values in (one.low, one.y, one.high))
        x = 1e3 * np.array(one.x)
        panel.plot(x, middle, color=color, ls=line, lw=1.5, label=one.name)
        least = np.where(np.isnan(low) & ~np.isnan(high), FLOOR, low)  # some seeds never exceeded it
        panel.fill_between(x, least, high, color=color, alpha=0.16, lw=0)
    panel.axvline(1e3 * slo, color=style.INK, ls="--", lw=1, label="SLO")
    panel.set(xlabel="latency, ms", ylabel="% of the windows beyond", xscale="log", yscale="log")
    style.decades(panel.xaxis)
    style.decades(panel.yaxis)
    panel.set_ylim(bottom=FLOOR)
