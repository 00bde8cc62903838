"""The figures of a report, drawn from its data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.duration import format_duration, is_cut
from tuner.report.document import LearnedCost, Report, WindowReport
from tuner.report.style import INK, MUTED, decades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["latency_figure", "learned_figure", "resources_figure", "to_svg"]

COLORS = (
    (8, 72, 135), (67, 130, 190), (150, 190, 222), (228, 228, 224), (247, 180, 110), (219, 116, 30),
    (140, 55, 5),
)  # fmt: skip
"""Colours of costs, as on the live page: blue below 1, orange above it, which all people can tell apart."""
FARTHEST = 4.0
"""Factor from a cost of 1 at which the colours end."""
MOST_PANELS = 8
"""Panels for one load; more values of the further knobs are drawn as one."""
MOST_NUMBERS = 64
"""Cells of a panel that all have their number."""
GOOD, BAD, CHANGE, LOAD = "#1f8a5b", "#c8473b", "#b7791f", "#3b6ea8"
"""What was kept, what was broken, a change of the configuration, and the load."""


def _figure(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, np.ndarray]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "servetune"  # the same data gives the same file
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=MUTED, labelsize=8)
        axis.set_axisbelow(True)
    return figure, axes


def to_svg(figure: Figure) -> str:
    """Return a figure as an ``<svg>`` element for embedding in HTML."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _values(windows: Sequence[WindowReport], name: str) -> np.ndarray:
    return np.array([math.nan if (v := w.figure(name)) is None else v for w in windows], dtype=float)


def _middles(windows: Sequence[WindowReport]) -> np.ndarray:
    return np.array([w.start + w.seconds / 2 for w in windows])


def latency_figure(report: Report) -> Figure:
    """Draw latency and load over time; every change of the configuration is marked and numbered.

    The line and the points are the statistic that the SLO is on.
    """
    windows, statistic = report.windows, report.statistic
    figure, axes = _figure(2, 1, (10, 5.6), sharex=True, height_ratios=[3.2, 1])
    top, bottom = axes[:, 0]
    time, latency = _middles(windows), _values(windows, f"{statistic}_ms")
    p50, p99 = _values(windows, "p50_ms"), _values(windows, "p99_ms")
    top.fill_between(time, p50, p99, color=LOAD, alpha=0.12, lw=0, label="p50 to p99")
    top.plot(time, latency, color=INK, lw=1.4, label=statistic)
    kept = np.array([w.slo_kept for w in windows])
    quiet = np.array([not w.disturbed for w in windows])
    cut = np.array([is_cut(w.figure(f"{statistic}_ms"), w.figure("cut_off_ms")) for w in windows])
    if cut.any():
        top.scatter(
            time[cut], latency[cut], s=46, marker="^", color=BAD, zorder=4, label="cut off: it was longer"
        )
    top.scatter(time[kept & quiet], latency[kept & quiet], s=22, color=GOOD, zorder=3, label="SLO kept")
    top.scatter(time[~kept & quiet], latency[~kept & quiet], s=22, color=BAD, zorder=3, label="SLO broken")
    top.scatter(
        time[~quiet], latency[~quiet], s=24, facecolors="none", edgecolors=MUTED, zorder=3, label="not used"
    )
    top.axhline(report.slo_ms, color=BAD, lw=1, ls="--")
    top.annotate(
        f"SLO: {statistic} ≤ {format_duration(report.slo_ms / 1e3)}",
        (1, report.slo_ms),  # at the right end: changes, and their lines, crowd at the left one
        xycoords=("axes fraction", "data"),
        color=BAD,
        fontsize=8,
        ha="right",
        va="bottom",
    )
    top.set_yscale("log")
    decades(top.yaxis)
    top.set_ylabel("latency, ms", color=INK)
    _mark_changes(top, windows)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1.04), fontsize=8, frameon=False, ncols=6)
    bottom.step(time, _values(windows, "load"), where="mid", color=LOAD)
    bottom.set_ylim(bottom=0)
    bottom.set_ylabel("load, requests/s", color=INK)
    bottom.set_xlabel("seconds since the run began", color=INK)
    return figure


def _mark_changes(axis: Axes, windows: Sequence[WindowReport]) -> None:
    """Draw a line at the end of each window after which the configuration changed."""
    for window in windows:
        if window.next_configuration is None:
            continue
        end = window.start + window.seconds
        axis.axvline(end, color=BAD if window.decision == "rollback" else CHANGE, lw=0.8, alpha=0.7)
        axis.annotate(
            str(window.number),
            (end, 1.0),
            xycoords=("data", "axes fraction"),
            fontsize=6,
            color=CHANGE,
            ha="center",
        )


def resources_figure(report: Report) -> Figure:
    """Draw the CPU used by the server and by others, and the mean batch size, over time."""
    windows = report.windows
    figure, axes = _figure(2, 1, (10, 3.6), sharex=True)
    top, bottom = axes[:, 0]
    time = _middles(windows)
    top.step(time, _values(windows, "cpu"), where="mid", color=INK, label="server")
    top.step(time, _values(windows, "foreign_cpu"), where="mid", color=MUTED, ls=":", label="foreign")
    gpu = _values(windows, "gpu")
    if np.isfinite(gpu).any():
        top.step(time, gpu, where="mid", color=GOOD, label="GPU, share")
    top.set_ylim(bottom=0)
    top.set_ylabel("CPU, cores", color=INK)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, frameon=False, ncols=3)
    bottom.step(time, _values(windows, "batch_mean"), where="mid", color=LOAD)
    bottom.set_ylim(bottom=0)
    bottom.set_ylabel("mean batch", color=INK)
    bottom.set_xlabel("seconds since the run began", color=INK)
    return figure


def learned_figure(report: Report) -> Figure | None:
    """Draw the cost over the knobs, on the scale of the live page: a panel for each load and further knobs.

    Where a configuration was measured its number is what was measured, in bold; the others are inferred.
    """
    panels = [panel for learned in report.learned for panel in _panels(report, learned)]
    if not panels:
        return None
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    columns = min(len(panels), 4)
    rows = math.ceil(len(panels) / columns)
    figure, axes = _figure(rows, columns, (3.0 * columns + 0.6, 2.7 * rows + 0.4))
    colors = LinearSegmentedColormap.from_list("costs", [tuple(v / 255 for v in c) for c in COLORS])
    image = None
    for axis, panel in zip(axes.flat, panels, strict=False):
        image = axis.imshow(
            panel.costs,
            cmap=colors,
            norm=LogNorm(1 / FARTHEST, FARTHEST, clip=True),
            aspect="auto",
            origin="lower",
        )
        _label_cells(axis, panel, image)
        _label_axes(axis, report)
        axis.set_title(panel.title, fontsize=9, color=INK)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    if image is not None:
        label = "cost, 1: just at the SLO"
        bar = figure.colorbar(image, ax=axes, shrink=0.8, label=label, extend="both")
        bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["¼", "½", "1", "2", "4"])
        bar.minorticks_off()
    return figure


class Panel(NamedTuple):
    """One picture of costs over the first two knobs."""

    title: str
    costs: np.ndarray  # (rows, columns); NaN where nothing is known
    measured: np.ndarray  # (rows, columns) bool
    chosen: tuple[int, ...] | None
    """The cell of what ran last under this load."""


def _panels(report: Report, learned: LearnedCost) -> Iterator[Panel]:
    """Yield a panel for each value of the further knobs; one for all of them where there are many."""
    shape = [len(knob["grid"]) for knob in report.knobs]
    shape = shape if len(shape) > 1 else [*shape, 1]
    costs, measured = (
        np.array([math.nan if c is None else c for c in values], dtype=float).reshape(shape)
        for values in (learned.costs, learned.measured or [None] * len(learned.costs))
    )
    if not np.isfinite(costs).any():
        return
    tried = np.isfinite(measured)
    costs[tried] = measured[tried]
    chosen = None
    if learned.chosen is not None:
        chosen = tuple(knob["grid"].index(learned.chosen[knob["name"]]) for knob in report.knobs)
        chosen = chosen if len(chosen) > 1 else (*chosen, 0)
    title, further = learned.load, report.knobs[2:]
    if math.prod(shape[2:]) > MOST_PANELS:
        names = ", ".join(knob["name"] for knob in further)
        yield _aggregated(f"{title}\nthe least over {names}", costs, tried, chosen)
        return
    for rest in np.ndindex(*shape[2:]):
        values = [f"{k['name']} {_value(k, k['grid'][i])}" for k, i in zip(further, rest, strict=True)]
        cut = (slice(None), slice(None), *rest)
        here = chosen[:2] if chosen is not None and chosen[2:] == rest else None
        yield Panel("\n".join([title, *filter(None, [", ".join(values)])]), costs[cut], tried[cut], here)


def _aggregated(title: str, costs: np.ndarray, tried: np.ndarray, chosen: tuple[int, ...] | None) -> Panel:
    """Return a panel of the least measured cost of all that share a cell, or else of the least one."""
    further = tuple(range(2, costs.ndim))
    least = np.where(tried, costs, np.inf).min(axis=further)
    inferred = np.where(np.isnan(costs), np.inf, costs).min(axis=further)
    found = np.where(np.isfinite(least), least, inferred)
    shown = np.where(np.isfinite(found), found, math.nan)
    return Panel(title, shown, np.isfinite(least), chosen[:2] if chosen is not None else None)


def _label_cells(axis: Axes, panel: Panel, image: Any) -> None:
    """Write costs into their cells, in an ink that can be read there; of many cells only those measured."""
    from matplotlib.patches import Rectangle

    for (row, column), cost in np.ndenumerate(panel.costs):
        measured = panel.measured[row, column]
        if np.isfinite(cost) and (measured or panel.costs.size <= MOST_NUMBERS):
            red, green, blue, _ = image.to_rgba(cost)
            ink = INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "white"
            weight = "bold" if measured else "normal"
            axis.text(
                column, row, _short(cost), ha="center", va="center", fontsize=7, weight=weight, color=ink
            )
    if panel.chosen is not None:
        row, column = panel.chosen
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec=INK, lw=2.2, clip_on=False))


def _short(cost: float) -> str:
    return f"{cost:.2f}" if cost < 10 else f"{cost:,.0f}"


def _value(knob: dict[str, Any], value: float) -> str:
    return format_duration(value) if knob["unit"] == "s" else f"{value:g}"


def _label_axes(axis: Axes, report: Report) -> None:
    def labels(knob: dict[str, Any]) -> list[str]:
        return [_value(knob, value) for value in knob["grid"]]

    vertical = report.knobs[0]
    axis.set_yticks(range(len(vertical["grid"])), labels(vertical))
    axis.set_ylabel(vertical["name"], fontsize=8, color=INK)
    if len(report.knobs) > 1:
        horizontal = report.knobs[1]
        axis.set_xticks(range(len(horizontal["grid"])), labels(horizontal))
        axis.set_xlabel(horizontal["name"], fontsize=8, color=INK)
        if len(horizontal["grid"]) > 7:
            axis.tick_params(axis="x", labelrotation=60)
    else:
        axis.set_xticks([])
