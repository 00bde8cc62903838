"""Draws what most figures are: the curves of a result in one panel, or in a row of panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.experiments.frame.result import Result
from tuner.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curves_drawn", "panels_drawn"]

ONE_PANEL = (5.6, 3.6)
"""Inches."""


def curves_drawn(
    result: Result,
    title: str,
    *,
    size: tuple[float, float] = ONE_PANEL,
    legend: str = "best",
    **labels: Any,
) -> tuple[style.Drawing, Axes]:
    """Draw the curves of a result that has one panel.

    Args:
        result: Whose curves have no panel's name.
        title: What the figure shows, in a line.
        size: Inches.
        legend: Where it goes; empty for none, as a single curve needs.
        **labels: As of ``Axes.set``, such as ``xlabel``.

    Returns:
        The figure and its panel, for whatever else is to be marked there.
    """
    figure, axes = style.figure(title, size=size)
    axis = axes[0, 0]
    style.curves(axis, result.panel())
    axis.set(**labels)
    if legend:
        style.legend(axis, loc=legend)
    return style.Drawing(figure), axis


def panels_drawn(
    result: Result, title: str, panels: Sequence[str], *, ylabels: Sequence[str], **labels: Any
) -> tuple[style.Drawing, Sequence[Axes]]:
    """Draw the curves of a result panel by panel, side by side, with a legend in the first.

    Args:
        result: Whose curves have panels.
        title: What the figure shows, in a line.
        panels: Their names, from the left.
        ylabels: Of the panels; the last one holds for those that follow, too.
        **labels: Of all panels, as of ``Axes.set``.
    """
    figure, axes = style.figure(title, columns=len(panels))
    for place, (axis, panel) in enumerate(zip(axes.flat, panels, strict=True)):
        style.curves(axis, result.panel(panel))
        axis.set(title=panel, ylabel=ylabels[min(place, len(ylabels) - 1)], **labels)
    style.legend(axes.flat[0])
    return style.Drawing(figure), list(axes.flat)
