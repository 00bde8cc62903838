"""The documentation's page of benchmarks, written from the stored reports and the notes beside them."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.benchmarks.catalogue import BENCHMARKS
from tuner.experiments.benchmarks.report import BenchReport, BenchRow

__all__ = ["benchmarks_page"]

HEADER = """# Benchmarks

How fast the simulator, the scheduling policies and one live decision are. Every number in the tables is that
of a stored report, `experiments/results/bench-NAME.json`; the page is written by `tuner experiment page`. A
baseline was measured in the same run; a ratio says how many times better than it a figure is.
"""
SECTION = """## tuner bench {name}

{title}. `{command}`, {seconds:.0f} s, each figure the median of {repeats}; {made}, {machine}; load average
{load} at the end.

"""


def benchmarks_page(results: Path, notes: Path) -> str:
    """Return the page as Markdown.

    Args:
        results: Where the reports are stored as ``bench-NAME.json``.
        notes: A folder with a ``bench-NAME.md`` for each benchmark that needs words.

    Raises:
        StorageError: A stored report is damaged.
    """
    parts = [HEADER]
    for name, title in BENCHMARKS.items():
        path, note = results / f"bench-{name}.json", notes / f"bench-{name}.md"
        if not path.exists():
            continue
        report = BenchReport.load(path)
        section = SECTION.format(
            name=name,
            title=title[0].upper() + title[1:],
            command=report.command,
            seconds=report.seconds,
            repeats=report.repeats,
            made=report.started[:16].replace("T", " "),
            machine=report.machine,
            load=report.load_average,
        )
        words = f"{note.read_text(encoding='utf-8').strip()}\n\n" if note.exists() else ""
        parts.append(section + words + _table(report.rows))
    return "\n".join(parts)


def _table(rows: list[BenchRow]) -> str:
    lines = ["| figure | value | unit | baseline | ratio | note |", "|---|---:|---|---:|---:|---|"]
    for row in rows:
        baseline, ratio = (_number(value) for value in (row.baseline, row.ratio))
        lines.append(f"| {row.id} | {_number(row.value)} | {row.unit} | {baseline} | {ratio} | {row.note} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    """Write a figure with the digits that are stored."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
