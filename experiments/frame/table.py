"""Prints the rows of a result as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from tuner.cli.console import make_console

__all__ = ["show_rows"]


def show_rows(
    title: str,
    columns: Sequence[str],
    rows: Iterable[tuple[str, Sequence[float | None], str, str]],
) -> None:
    """Print the rows of a result.

    Args:
        title: Of the table.
        columns: What the numbers of each row are.
        rows: Name, numbers, unit and note of each.
    """
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("figure")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("unit")
    table.add_column("note")
    for name, numbers, unit, note in rows:
        table.add_row(name, *("-" if v is None else f"{v:,.4g}" for v in numbers), unit, note)
    make_console().print(table)
