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
    from tuner.report.folder import DATA, redraw_report

    if os.path.isfile(folder):  # `Path.is_file` raises where it cannot be reached
        if folder.name != DATA:
            raise InvalidInput("RUN", f"{folder} is a file", f"give the run's folder, or the {DATA} in it")
        folder = folder.parent
    print(redraw_report(folder))
