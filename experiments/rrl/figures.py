"""Draws how agents compare: cost over time, windows to near the best, tails, broken SLOs, resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tuner.experiments import style
from tuner.experiments.result import Series
from tuner.experiments.rrl.series import bars, exceeding, over_time
from tuner.laboratory.trial import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = ["above", "comparison_figures", "draw_bars", "draw_ccdf", "draw_time"]

FLOOR = 0.02
"""% of the windows that distributions are drawn down to: less than one window of 3,000."""
COLORS = 8
"""Colours that there are; then they come again, dashed."""
WIDE = 8.0
"""Ratio of the greatest to the least value from which on an axis is logarithmic."""


def comparison_figures(trials: Sequence[Trial], folder: Path, name: str = "comparison") -> list[Path]:
    """Draw trials of the same load under several agents.

    Args:
        trials: Of equal length.
        folder: Where the figures go.
        name: What their files begin with.

    Returns:
        The files.
    """
    first = trials[0]
    where = f"{first.spec.env.removeprefix('tuner/')} {first.spec.workload or ''}".strip()
    latency = first.slo.statistic if first.slo.statistic in ("mean", "p99") else "p95"
    drawn = []

    figure, axes = style.figure(f"Cost over time, {where}", size=(7.5, 3.8))
    draw_time(axes[0, 0], over_time(trials, lambda t: t.cost), "cost, running mean")
    if np.isfinite(first.best).any():
        best = over_time(trials[:1], lambda t: t.best)[0]
        axes[0, 0].plot(best.x, best.y, color=style.MUTED, ls="--", lw=1, label="oracle, exact")
    above(axes[0, 0])
    drawn.append(style.save(figure, folder, f"{name}-cost"))

    if np.isfinite(first.best).any():
        figure, axes = style.figure(f"Windows until near the oracle for good, {where}", size=(6.5, 3.6))
        series = bars(trials, lambda f: f.windows_to_converge)
        draw_bars(axes[0, 0], series, "windows", missing=f"not within\n{len(first.cost)}")
        drawn.append(style.save(figure, folder, f"{name}-convergence"))

    figure, axes = style.figure(f"Windows whose {latency} exceeded a latency, {where}", size=(6, 3.8))
    draw_ccdf(axes[0, 0], exceeding(trials, lambda t: getattr(t, latency)), first.slo.latency)
    above(axes[0, 0])
    drawn.append(style.save(figure, folder, f"{name}-ccdf"))

    figure, axes = style.figure(f"Windows that broke the SLO ({first.slo}), {where}", size=(6.5, 3.6))
    draw_bars(axes[0, 0], bars(trials, lambda f: 100 * f.slo_violations), "% of the windows")
    drawn.append(style.save(figure, folder, f"{name}-slo"))

    gpu = bool(np.isfinite(first.gpu).any())
    figure, axes = style.figure(f"Resources in use, {where}", size=(7.5, 3.8))
    draw_time(
        axes[0, 0],
        over_time(trials, lambda t: t.gpu if gpu else t.cpu),
        "share of the GPU" if gpu else "cores",
    )
    above(axes[0, 0])
    drawn.append(style.save(figure, folder, f"{name}-resources"))
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
    for index, one in enumerate(series):
        color, line = _look(index)
        low, middle, high = (style.floats(values or one.y) for values in (one.low, one.y, one.high))
        panel.plot(one.x, middle, color=color, ls=line, lw=1.3, label=one.name)
        if band:
            panel.fill_between(one.x, low, high, color=color, alpha=0.16, lw=0)
    values = np.concatenate([style.floats(one.y) for one in series])
    values = values[np.isfinite(values) & (values > 0)]
    if log or (log is None and values.size and values.max() > WIDE * values.min()):
        panel.set_yscale("log")
        _decades(panel.yaxis)
    else:
        panel.set_ylim(bottom=0)
    panel.set(xlabel="window", ylabel=label)


def _look(index: int) -> tuple[str, str]:
    """Colour and dashes of an agent: its place tells, since agents share names with no policy."""
    return style.look("", index).color, "-" if index < COLORS else "--"


def above(panel: Axes) -> None:
    """Put the legend above a panel, where it hides nothing."""
    style.legend(panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.1)


def draw_bars(panel: Axes, series: Sequence[Series], label: str, missing: str = "none") -> None:
    """Draw one figure per agent: the median as a bar, from the least to the greatest as a line.

    Args:
        panel: Where.
        series: One per agent, as :func:`~tuner.experiments.rrl.series.bars` makes them.
        label: Of the vertical axis.
        missing: Written where there is no median.
    """
    names = [one.name.replace(":", "\n") for one in series]
    for index, one in enumerate(series):
        color, _ = _look(index)
        place, height = one.x[0], one.y[0]
        if height is None:
            panel.annotate(missing, (place, 0), (0, 4), textcoords="offset points", ha="center", fontsize=8)
            continue
        panel.bar(
            place, height, 0.65, color=color, hatch="//" if index >= COLORS else None, edgecolor="white"
        )
        low, high = one.low[0], one.high[0]
        if low is not None:
            top = high if high is not None else height
            panel.plot([place, place], [low, top], color=style.INK, lw=1.2)
        text = f"{height:,.0f}" if height >= 100 else f"{height:.3g}"
        text = text if high is not None else f"{text}\n(some never)"
        above = max(height, high or height)
        panel.annotate(
            text, (place, above), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8
        )
    panel.margins(y=0.18)
    panel.set_ylim(bottom=0)
    panel.set_xticks(range(len(series)), names)
    panel.set_ylabel(label)


def draw_ccdf(panel: Axes, series: Sequence[Series], slo: float) -> None:
    """Draw shares that exceed a latency, both axes logarithmic, the SLO as a dashed line (s)."""
    for index, one in enumerate(series):
        color, line = _look(index)
        low, middle, high = (100 * style.floats(values or one.y) for values in (one.low, one.y, one.high))
        x = 1e3 * np.array(one.x)
        panel.plot(x, middle, color=color, ls=line, lw=1.5, label=one.name)
        least = np.where(np.isnan(low) & ~np.isnan(high), FLOOR, low)  # some seeds never exceeded it
        panel.fill_between(x, least, high, color=color, alpha=0.16, lw=0)
    panel.axvline(1e3 * slo, color=style.INK, ls="--", lw=1, label="SLO")
    panel.set(xlabel="latency, ms", ylabel="% of the windows beyond", xscale="log", yscale="log")
    _decades(panel.xaxis)
    _decades(panel.yaxis)
    panel.set_ylim(bottom=FLOOR)


def _decades(axis: Axis) -> None:
    """Label a logarithmic axis in numbers as people write them, a short one at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())
