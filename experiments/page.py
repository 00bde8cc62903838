"""The page of measurements in the documentation, written from the stored results alone."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.catalogue import EXPERIMENTS
from tuner.experiments.result import Result, Row

__all__ = ["results_page"]

MOST_ROWS = 12
HEADER = """# What was measured

Every number on this page comes from a stored result in `experiments/results/`, made by the command named
with it; the page itself is written by `tuner experiment page`. Targets are what we set out to reach; where
a figure misses one, the note under it says why. The machine: two shared cores of a virtual machine without
a GPU, the load generator on the same two cores.
"""


def results_page(folder: Path, notes: Path) -> str:
    """Return the page as Markdown.

    Args:
        folder: Where the results are stored.
        notes: A folder with a ``NAME.md`` for each experiment that needs words.

    Raises:
        StorageError: A stored result is damaged.
    """
    parts = [HEADER]
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.json"
        if path.exists():
            parts.append(_section(experiment.title, Result.load(path)))
            note = notes / f"{name}.md"
            if note.exists():
                parts.append(note.read_text(encoding="utf-8"))
    return "\n".join(parts)


def _section(title: str, result: Result) -> str:
    seeds = "seed" if result.seeds == 1 else "seeds"
    made = f"{result.started[:10]}, {result.seeds} {seeds}, {result.seconds / 60:.0f} min"
    lines = [
        f"## {title}",
        "",
        f"`{result.command}` ({made})",
        "",
        "| figure | target | measured | low | high | unit | note |",
        "|---|---:|---:|---:|---:|---|---|",
        *[_line(row) for row in result.rows[:MOST_ROWS]],
    ]
    if len(result.rows) > MOST_ROWS:
        more = len(result.rows) - MOST_ROWS
        lines.append(f"\n{more} more rows are in `experiments/results/{result.experiment}.json`.")
    return "\n".join([*lines, ""])


def _line(row: Row) -> str:
    numbers = ["" if v is None else f"{v:,.4g}" for v in (row.published, row.measured, row.low, row.high)]
    return f"| {row.id} | {' | '.join(numbers)} | {row.unit} | {row.note} |"
