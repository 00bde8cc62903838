"""``tuner report``: draw a stored run again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["EXAMPLES", "report"]

EXAMPLES = """Example: [bold]tuner report runs/2026-11-20_14-00-00[/bold]"""


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or the report.json in it.")],
) -> None:
    """Write report.html again, from the report.json of a run."""
    from tuner.errors import InvalidInput
    from tuner.report import Report
    from tuner.report.html import save_html

    if os.path.isfile(folder):  # `Path.is_file` raises where it cannot be reached
        if folder.name != "report.json":
            raise InvalidInput(
                "RUN", f"{folder} is a file", "give the run's folder, or the report.json in it"
            )
        folder = folder.parent
    page = folder / "report.html"
    save_html(Report.load(folder / "report.json"), page)
    print(page)
