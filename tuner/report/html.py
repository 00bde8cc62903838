"""The report as one HTML file, which loads nothing from elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tuner.duration import format_duration, format_ms
from tuner.files.storage import write_atomically
from tuner.measurement import QUANTITIES, STATISTICS, Quantity
from tuner.plugin import install_text
from tuner.report.document import Measured, Report
from tuner.report.plots import latency_figure, learned_figure, resources_figure, to_svg

__all__ = ["render", "save_html"]

NO_FIGURES = f"Figures need matplotlib; {install_text('lab')}. Then tuner report FOLDER draws them."


def save_html(report: Report, path: Path) -> None:
    """Write ``report.html``.

    Raises:
        StorageError: The folder cannot be written.
    """
    write_atomically(path, render(report))


def render(report: Report) -> str:
    """Return the report as a page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tuner.report", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["knobs"] = lambda configuration: _knobs(report, configuration)
    environment.filters["figure"] = _figure_text
    environment.filters["latency"] = _latency
    environment.filters["unit"] = _unit
    figures = {"latency": NO_FIGURES, "resources": "", "learned": ""}
    if find_spec("matplotlib") is not None:
        learned = learned_figure(report)
        figures = {
            "latency": Markup(to_svg(latency_figure(report))) if report.windows else "",
            "resources": Markup(to_svg(resources_figure(report))) if report.windows else "",
            "learned": Markup(to_svg(learned)) if learned is not None else "",
        }
    return environment.get_template("template.html").render(
        report=report,
        figures=figures,
        quantities=QUANTITIES,
        statistics=[name for name in STATISTICS if name != "mean" or report.statistic == "mean"],
    )


def _knobs(report: Report, configuration: dict[str, float]) -> str:
    """Write a configuration for people."""
    units = {knob["name"]: knob["unit"] for knob in report.knobs}
    return ", ".join(
        f"{name} {format_duration(value) if units.get(name) == 's' else f'{value:g}'}"
        for name, value in configuration.items()
    )


def _latency(part: Measured, statistic: str) -> str:
    return format_ms(part.figure(f"{statistic}_ms"), part.figure("cut_off_ms"))


def _unit(quantity: Quantity) -> str:
    return "ms" if quantity.unit == "s" else quantity.unit


def _figure_text(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
