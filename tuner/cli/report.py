"""``tuner report``: draw a stored run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["EXAMPLES", "report"]

EXAMPLES = """Example: [bold]tuner report runs/2026-11-20_14-00-00[/bold]"""


def report(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]) -> None:
    """Write report.html again, from the report.json of a run."""
    from tuner.report import Report
    from tuner.report.html import save_html

    page = folder / "report.html"
    save_html(Report.load(folder / "report.json"), page)
    print(page)
