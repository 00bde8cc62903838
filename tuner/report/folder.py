"""The folder of a report: its data in ``report.json``, and ``report.html``, the page drawn from them."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import StorageError
from tuner.printable import one_line
from tuner.report.document import Report
from tuner.report.html import save_html

__all__ = ["DATA", "redraw_report", "write_report"]

DATA, PAGE = "report.json", "report.html"
NOT_DRAWN = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What drawing raises over data whose parts each have the right form, but not together: costs that are more
than there are configurations, say, or a knob that a configuration lacks."""


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
        StorageError: The data cannot be read, or do not fit together, or the page cannot be written.
    """
    data, page = folder / DATA, folder / PAGE
    report = Report.load(data)
    try:
        save_html(report, page)
    except NOT_DRAWN as error:
        why = one_line(f"{type(error).__name__}: {error}", 200)
        raise StorageError(
            f"report {data}: cannot be drawn, its parts do not fit together ({why}); was it edited by hand?"
        ) from error
    return page
