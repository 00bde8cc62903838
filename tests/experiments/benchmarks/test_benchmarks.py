"""The benchmarks as commands: rows with baselines; how figures are compared and stored."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tuner.errors import InvalidInput
from tuner.experiments.benchmarks.catalogue import BENCHMARKS, run_benchmark
from tuner.experiments.benchmarks.report import BenchOptions, BenchReport, BenchRow, compared, seconds_of


def options(tmp_path: Path) -> BenchOptions:
    return BenchOptions(repeats=1, quick=True)


def test_ratio_says_how_many_times_better() -> None:
    """Of a speed more is better, of a time less."""
    assert compared("a", 10.0, 2.0, "1/s").ratio == 5
    assert compared("a", 10.0, 2.0, "us", less=True).ratio == pytest.approx(0.2)
    assert compared("a", 10.0, None, "us").ratio is None


def test_work_is_warmed_up_and_the_median_counts() -> None:
    """One run more than asked for."""
    calls = []

    assert seconds_of(lambda: calls.append(1), 3) >= 0
    assert len(calls) == 4


def test_report_is_stored_with_the_agreed_fields(tmp_path: Path) -> None:
    """Rows hold id, value, unit, baseline and ratio."""
    row = BenchRow(id="a", value=1.0, unit="s")
    BenchReport(benchmark="engine", command="c", seconds=1.0, repeats=2, rows=[row]).save(tmp_path / "b.json")

    stored = json.loads((tmp_path / "b.json").read_text())
    assert {"id", "value", "unit", "baseline", "ratio"} <= set(stored["rows"][0])


def test_unknown_benchmarks_are_named(tmp_path: Path) -> None:
    """The error lists what there is."""
    with pytest.raises(InvalidInput, match="decision"):
        run_benchmark("speed", options(tmp_path))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_a_module(name: str) -> None:
    """Each name has a module with a run function."""
    assert callable(importlib.import_module(f"tuner.experiments.benchmarks.{name}").run)


@pytest.mark.compiled
def test_decision_is_measured_beside_plain_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals and ends of batches for each policy and size, each with a baseline and a ratio."""
    from tuner.experiments.benchmarks import decision

    monkeypatch.setattr(decision, "QUICK", 500)

    rows = run_benchmark("decision", options(tmp_path))

    assert rows[0].id == "an empty compiled call"
    assert {row.id for row in rows} >= {"symphony, 1 x 8, arrive", "eager, 37 x 64, finish"}
    assert all(row.baseline and row.ratio for row in rows[1:])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["engine", "scheduler"])
def test_benchmarks_run(tmp_path: Path, name: str) -> None:
    """Every row is a positive figure; ids are different."""
    pytest.importorskip("simpy")

    rows = run_benchmark(name, options(tmp_path))

    assert len({row.id for row in rows}) == len(rows) > 10
    assert all(row.value > 0 for row in rows)


@pytest.mark.compiled
def test_kairos_is_measured_beside_scipy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matchings that cost what scipy's do, bounds, and simulations, each with its unit."""
    from tuner.experiments.benchmarks import kairos

    monkeypatch.setattr(kairos, "QUICK", 100)
    monkeypatch.setattr(kairos, "QUERIES", 5_000)
    monkeypatch.setattr(kairos, "SIZES", (5, 8))
    monkeypatch.setattr(kairos, "WIDE", ((4, 6), (9, 5)))
    rows = kairos.run(options(tmp_path))

    assert [row.unit for row in rows] == ["us"] * 6 + ["ms"] * 2 + ["queries/s"] * 2
    assert all(row.value > 0 for row in rows)
    assert all(row.baseline for row in rows if row.unit != "ms")
