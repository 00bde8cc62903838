"""The page of benchmarks says what was stored, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import StorageError
from tuner.experiments.benchmarks.page import benchmarks_page
from tuner.experiments.benchmarks.report import BenchReport, BenchRow

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "experiments" / "results"


def test_the_stored_page_is_that_of_the_stored_reports() -> None:
    """No number of docs/benchmarks.md is written by hand, except in the notes."""
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == benchmarks_page(
        RESULTS, RESULTS.parent / "notes"
    )


def test_a_row_of_the_table(tmp_path: Path) -> None:
    """Value, unit, baseline, ratio and note; the command and the note beside the report."""
    (tmp_path / "results").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bench-engine.md").write_text("Some words.\n")
    rows = [
        BenchRow(id="a", value=2.5e6, unit="1/s", baseline=1e5, ratio=25.0, note="n"),
        BenchRow(id="b", value=0.123, unit="us"),
    ]
    report = BenchReport(benchmark="engine", command="tuner c", seconds=3.2, repeats=2, rows=rows)
    report.save(tmp_path / "results" / "bench-engine.json")

    page = benchmarks_page(tmp_path / "results", tmp_path / "notes")

    assert "| a | 2,500,000 | 1/s | 100,000 | 25 | n |" in page
    assert "| b | 0.123 | us |  |  |  |" in page
    assert page.index("`tuner c`") < page.index("Some words.") < page.index("| a |")
    assert "tuner bench decision" not in page


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    """The error says which file."""
    (tmp_path / "bench-engine.json").write_text("{}")

    with pytest.raises(StorageError, match="bench-engine"):
        benchmarks_page(tmp_path, tmp_path)
