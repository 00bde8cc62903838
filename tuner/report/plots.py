"""The figures of a report, drawn from its data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.report.document import LearnedCost, Report, WindowReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["latency_figure", "learned_figure", "resources_figure", "to_svg"]

INK, MUTED, GOOD, BAD, CHANGE, LOAD = "#1b2733", "#7b8794", "#1f8a5b", "#c8473b", "#b7791f", "#3b6ea8"


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
    """Draw latency and load over time; every change of the configuration is marked and numbered."""
    windows = report.windows
    figure, axes = _figure(2, 1, (10, 5.6), sharex=True, height_ratios=[3.2, 1])
    top, bottom = axes[:, 0]
    time, p50, p95, p99 = (_middles(windows), *(_values(windows, f"{q}_ms") for q in ("p50", "p95", "p99")))
    top.fill_between(time, p50, p99, color=LOAD, alpha=0.12, lw=0, label="p50 to p99")
    top.plot(time, p95, color=INK, lw=1.4, label="p95")
    kept = np.array([w.slo_kept for w in windows])
    quiet = np.array([not w.disturbed for w in windows])
    top.scatter(time[kept & quiet], p95[kept & quiet], s=22, color=GOOD, zorder=3, label="SLO kept")
    top.scatter(time[~kept & quiet], p95[~kept & quiet], s=22, color=BAD, zorder=3, label="SLO broken")
    top.scatter(
        time[~quiet], p95[~quiet], s=24, facecolors="none", edgecolors=MUTED, zorder=3, label="not used"
    )
    top.axhline(report.slo_ms, color=BAD, lw=1, ls="--")
    top.annotate(
        f" SLO: {report.statistic} ≤ {report.slo_ms:g} ms",
        (0, report.slo_ms),
        color=BAD,
        fontsize=8,
        va="bottom",
    )
    top.set_yscale("log")
    top.yaxis.set_major_formatter("{x:g}")
    top.yaxis.set_minor_formatter("{x:g}")
    top.tick_params(axis="y", which="minor", labelsize=6, colors=MUTED)
    top.set_ylabel("latency, ms", color=INK)
    _mark_changes(top, windows)
    top.legend(loc="upper right", fontsize=8, frameon=False, ncols=5)
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
    top.legend(loc="upper right", fontsize=8, frameon=False, ncols=3)
    bottom.step(time, _values(windows, "batch_mean"), where="mid", color=LOAD)
    bottom.set_ylim(bottom=0)
    bottom.set_ylabel("mean batch", color=INK)
    bottom.set_xlabel("seconds since the run began", color=INK)
    return figure


def learned_figure(report: Report) -> Figure | None:
    """Draw the learned cost over the knobs: a panel for each load level and value of the further knobs."""
    panels = [panel for learned in report.learned for panel in _panels(report, learned)]
    if not panels:
        return None
    columns = min(len(panels), 4)
    rows = math.ceil(len(panels) / columns)
    figure, axes = _figure(rows, columns, (3.0 * columns + 0.6, 2.7 * rows + 0.4))
    everything = np.concatenate([np.log10(costs[np.isfinite(costs)]) for _, costs, _ in panels])
    low, high = (float(everything.min()), float(everything.max())) if everything.size else (0.0, 1.0)
    image = None
    for axis, (title, costs, visits) in zip(axes.flat, panels, strict=False):
        image = axis.imshow(
            np.log10(costs), cmap="RdYlGn_r", vmin=low, vmax=high, aspect="auto", origin="lower"
        )
        _label_cells(axis, costs, visits)
        _label_axes(axis, report)
        axis.set_title(title, fontsize=9, color=INK)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    if image is not None:
        bar = figure.colorbar(image, ax=axes, shrink=0.8, label="learned cost (1 = just at the SLO)")
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{10**value:.2g}")
    return figure


def _panels(report: Report, learned: LearnedCost) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield title, costs and visits of each two-dimensional slice of the grid."""
    shape = [len(knob["grid"]) for knob in report.knobs]
    grid_shape = shape if len(shape) > 1 else [*shape, 1]
    costs = np.array([math.nan if c is None else c for c in learned.costs], dtype=float).reshape(grid_shape)
    visits = np.array(learned.visits).reshape(grid_shape)
    if not np.isfinite(costs).any():
        return
    for rest in np.ndindex(*grid_shape[2:]):
        further = "".join(
            f", {knob['name']} = {knob['grid'][i]:g}" for knob, i in zip(report.knobs[2:], rest, strict=True)
        )
        cut = (slice(None), slice(None), *rest)
        yield f"{learned.rate:.0f} requests/s{further}", costs[cut], visits[cut]


def _label_cells(axis: Axes, costs: np.ndarray, visits: np.ndarray) -> None:
    """Write each cost; in bold if the configuration was tried."""
    for (row, column), cost in np.ndenumerate(costs):
        if np.isfinite(cost):
            weight = "bold" if visits[row, column] else "normal"
            axis.text(
                column, row, f"{cost:.2g}", ha="center", va="center", fontsize=7, weight=weight, color=INK
            )


def _label_axes(axis: Axes, report: Report) -> None:
    def labels(knob: dict[str, Any]) -> list[str]:
        scale = 1e3 if knob["unit"] == "s" else 1
        return [f"{value * scale:g}" for value in knob["grid"]]

    def name(knob: dict[str, Any]) -> str:
        return f"{knob['name']}{', ms' if knob['unit'] == 's' else ''}"

    vertical = report.knobs[0]
    axis.set_yticks(range(len(vertical["grid"])), labels(vertical))
    axis.set_ylabel(name(vertical), fontsize=8, color=INK)
    if len(report.knobs) > 1:
        horizontal = report.knobs[1]
        axis.set_xticks(range(len(horizontal["grid"])), labels(horizontal))
        axis.set_xlabel(name(horizontal), fontsize=8, color=INK)
    else:
        axis.set_xticks([])
