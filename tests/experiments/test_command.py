"""`tuner experiment` and `tuner bench` on the command line."""

from __future__ import annotations

import json
import sys

import pytest

from tuner.__main__ import main
from tuner.experiments.frame.result import Result


@pytest.fixture
def tuner(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder and return what it printed and how it ended."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        return said.out + said.err, ending.value.code or 0

    return call


def test_the_list_is_grouped_by_paper(tuner):
    """Every experiment with its paper."""
    printed, code = tuner("experiment", "list")

    assert code == 0
    assert printed.index("A live server") < printed.index("triton-sweep") < printed.index("Symphony")
    assert printed.index("Symphony") < printed.index("symphony-table2")


def test_run_stores_rows_and_figures(tuner, tmp_path):
    """The JSON has the agreed fields; the figure lies where it was asked for."""
    printed, code = tuner(
        "experiment", "run", "symphony-analytic", "--json", "out/a.json", "--plot", "figures"
    )

    stored = json.loads((tmp_path / "out" / "a.json").read_text())
    assert code == 0
    assert {"experiment", "seeds", "seconds", "rows"} <= set(stored)
    assert set(stored["rows"][0]) == {"id", "published", "measured", "low", "high", "unit", "note"}
    assert Result.load(tmp_path / "out" / "a.json").command.startswith(
        "tuner experiment run symphony-analytic"
    )
    assert "figures/symphony-analytic.png" in printed
    assert (tmp_path / "figures" / "symphony-analytic.png").stat().st_size < 150_000


def test_pages_are_written_from_stored_results(tuner, tmp_path):
    """Page, figure and index."""
    tuner("experiment", "run", "symphony-analytic")
    printed, code = tuner("experiment", "page")

    folder = tmp_path / "docs" / "experiments"
    assert code == 0
    assert "symphony-analytic.md" in printed
    assert "images/symphony-analytic.png" in (folder / "symphony-analytic.md").read_text()
    assert (folder / "images" / "symphony-analytic.png").exists()
    assert "symphony-analytic.md" in (folder / "README.md").read_text()


def test_an_experiment_without_a_figure_says_so_before_it_runs(tuner):
    """Nothing is measured in vain."""
    printed, code = tuner("experiment", "run", "triton-profile", "--plot", ".")

    assert code == 2
    assert "--plot" in printed


def test_bench_shows_and_stores_rows(tuner, tmp_path, monkeypatch):
    """With value, unit, baseline and ratio."""
    from tuner.experiments.benchmarks import decision

    monkeypatch.setattr(decision, "QUICK", 500)

    printed, code = tuner("bench", "decision", "--quick", "--repeats", "1", "--json", "b.json")

    stored = json.loads((tmp_path / "b.json").read_text())
    assert code == 0
    assert "symphony, 1 x 8, arrive" in printed
    assert {"id", "value", "unit", "baseline", "ratio"} <= set(stored["rows"][0])


def test_an_unknown_benchmark_is_named(tuner):
    """The error lists what there is."""
    printed, code = tuner("bench", "everything")

    assert code == 2
    assert "engine, scheduler, decision" in printed
