"""The report as one HTML file, which loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from tuner.measurement import QUANTITIES
from tuner.report.document import Report
from tuner.report.plots import latency_figure, learned_figure, resources_figure, to_svg
from tuner.storage import write_atomically

__all__ = ["render", "save_html"]


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
    learned = learned_figure(report)
    figures = {
        "latency": Markup(to_svg(latency_figure(report))) if report.windows else "",
        "resources": Markup(to_svg(resources_figure(report))) if report.windows else "",
        "learned": Markup(to_svg(learned)) if learned is not None else "",
    }
    return environment.get_template("template.html").render(
        report=report, figures=figures, quantities=QUANTITIES
    )


def _knobs(report: Report, configuration: dict[str, float]) -> str:
    """Write a configuration for people, durations in ms."""
    units = {knob["name"]: knob["unit"] for knob in report.knobs}
    return ", ".join(
        f"{name} {value * 1e3:g} ms" if units.get(name) == "s" else f"{name} {value:g}"
        for name, value in configuration.items()
    )


def _figure_text(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
