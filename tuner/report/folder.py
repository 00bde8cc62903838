"""The folder of a report: its data in ``report.json``, and ``report.html``, the page drawn from them."""

from __future__ import annotations

from pathlib import Path

from tuner.report.document import Report
from tuner.report.html import save_html

__all__ = ["DATA", "redraw_report", "write_report"]

DATA, PAGE = "report.json", "report.html"


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write the data of a report and its page into a folder, and return their paths.

    Raises:
        StorageError: The folder cannot be written.
    """
    data, page = folder / DATA, folder / PAGE
    report.save(data)
    save_html(report, page)
    return data, page


def redraw_report(folder: Path) -> Path:
    """Write the page of a folder again from the data there, and return its path.

    Raises:
        StorageError: The data cannot be read, or the page cannot be written.
    """
    page = folder / PAGE
    save_html(Report.load(folder / DATA), page)
    return page
