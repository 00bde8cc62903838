"""Stored results survive, and rows and curves summarise honestly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.control.drive.sweep import SweepResult, SweepRow
from tuner.errors import StorageError
from tuner.experiments.frame.result import Result, row
from tuner.experiments.live.triton_convergence import windows_to_converge
from tuner.experiments.page import results_page
from tuner.knobs import Configuration
from tuner.report.series import Series, curve


def test_rows_give_median_and_spread() -> None:
    """Low and high are the extremes; what was not reached counts as the greatest, and is said."""
    assert row("x", [3.0, 1.0, 2.0]).model_dump() | {"note": ""} == {
        "id": "x", "published": None, "measured": 2.0, "low": 1.0, "high": 3.0, "unit": "", "note": "",
    }  # fmt: skip
    missed = row("x", [1.0, 2.0, math.inf])
    assert (missed.measured, missed.high, missed.note) == (2.0, None, "1 of 3 not reached")
    assert row("x", [1.0, math.inf]).measured is None


def test_curves_give_median_and_spread() -> None:
    """Per point as rows do; a point that nobody measured is a gap, one seed has no spread."""
    found = curve("symphony", [1, 2], [[3.0, 1.0, 2.0], [math.nan]], panel="a")

    assert (found.x, found.y, found.low, found.high) == ([1, 2], [2.0, None], [1.0, None], [3.0, None])
    assert curve("symphony", [1], [[3.0]]).low == []
    assert Result(experiment="x", seeds=1, seconds=1, command="", series=[found]).panel("a") == [found]
    with pytest.raises(ValueError, match="equally long"):
        Series(name="s", x=[1.0], y=[1.0, 2.0])


@pytest.mark.parametrize(
    ("ratios", "windows"),
    [([1.0], 1), ([2.0, 1.1, 1.0], 2), ([1.0, 2.0, 1.1], 3), ([1.0, 2.0], math.inf), ([], math.inf)],
)
def test_converged_means_near_the_best_and_staying_there(ratios: list[float], windows: float) -> None:
    """A window of luck does not count."""
    assert windows_to_converge(ratios) == windows


def test_results_survive_a_round_trip_and_damage_is_named(tmp_path: Path) -> None:
    """What was written is what is read; anything else is refused."""
    result = Result(experiment="triton-cpu", seeds=1, seconds=1.0, command="c", rows=[row("x", [1.0])])
    result.save(tmp_path / "triton-cpu.json")

    assert Result.load(tmp_path / "triton-cpu.json") == result
    assert "| x |  | 1 | 1 | 1 |" in results_page(tmp_path, tmp_path)
    (tmp_path / "triton-cpu.json").write_text("{")
    with pytest.raises(StorageError, match=r"triton-cpu\.json"):
        Result.load(tmp_path / "triton-cpu.json")


def test_sweeps_rank_by_the_median_of_undisturbed_windows() -> None:
    """One disturbed window does not move a configuration; one without any other comes last."""

    def window(p95: float, disturbed: Sequence[str] = ()) -> dict[str, Any]:
        return {"latency_p95": p95, "disturbed": list(disturbed)}

    result = SweepResult(
        command="c", started="s", target="t", server="s", model="m", rate=1, seconds=1, repeats=3, knobs=[],
        rows=[
            SweepRow(configuration={"b": 1}, windows=[window(0.02), window(0.9, ["foreign"]), window(0.03)]),
            SweepRow(configuration={"b": 2}, windows=[window(0.01), window(0.02), window(0.03)]),
            SweepRow(configuration={"b": 3}, refused="no memory"),
            SweepRow(configuration={"b": 4}, windows=[window(0.001, ["foreign", "late"])]),
        ],
    )  # fmt: skip

    assert [r.configuration["b"] for r in result.ranked()] == [2, 1, 4]
    assert [r.disturbance for r in result.rows] == ["", "", "", "foreign; late"]
    assert result.ranked()[1].median("latency_p95") == pytest.approx(0.025)
    assert Configuration(result.ranked()[0].configuration)["b"] == 2
