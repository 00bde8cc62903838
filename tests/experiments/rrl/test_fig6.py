"""Figures 3 to 6 of RRL, from a surface that is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS
from tuner.experiments.frame.result import Result
from tuner.experiments.rrl import fig6
from tuner.experiments.rrl.fig6 import ParallelismSurface


def known(seed: int) -> np.ndarray:
    """Latency grows by a tenth per step of every knob, and is twice as high with the second seed."""
    steps = np.indices((11, 11, 11)).sum(axis=0)
    latency: np.ndarray = (1 + seed) * 0.05 * 1.1**steps
    return latency


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(ParallelismSurface, "measure", lambda _, task, seed: known(seed))
    return quick(ParallelismSurface, seeds=2).run()


def test_differences_grow_with_the_distance(result: Result) -> None:
    """At distance 1 all pairs differ by a tenth; further ones by more, whatever the level of latency."""
    name = next(iter(fig6.CASES))
    rows = {row.id: row.measured for row in result.rows}

    assert rows[f"Fig. 6, {name}: factor at distance 1"] == pytest.approx(1.1)
    median = next(series for series in result.panel(name) if series.name == "median")
    assert median.y[0] < median.y[4]  # type: ignore[operator]
    assert median.low == median.high


def test_figure_3_is_relative_to_one_of_each(result: Result) -> None:
    """A curve of one kind of parallelism begins at 1."""
    for series in result.panel("Fig. 3"):
        assert series.y[0] == pytest.approx(1.0)
    assert result.rows[0].measured == pytest.approx(1.1**3)


def test_maps(result: Result) -> None:
    """What keeps the SLO and how far best and worst lie apart, of the part that the paper draws."""
    rows = {row.id: row.measured for row in result.rows}

    assert rows["Fig. 4: greatest over least"] == pytest.approx(1.1**20)
    shares = [rows[row] for row in rows if row.startswith(("Fig. 4: conf", "Fig. 5: conf"))]
    assert shares == pytest.approx(
        [
            100 * np.mean([(known_map < slo).mean() for known_map in maps])
            for maps, slo in (
                ([known(s)[:, :, 10] for s in (0, 1)], 0.55),
                ([known(s)[10] for s in (0, 1)], 0.52),
            )
        ]
    )


def test_figures_are_drawn(result: Result, tmp_path: Path) -> None:
    """One for each of the paper's."""
    files = ParallelismSurface.plot(result, tmp_path)

    assert [file.name for file in files] == [
        "rrl-fig6.png",
        "rrl-fig6-fig3.png",
        "rrl-fig6-fig4.png",
        "rrl-fig6-fig5.png",
    ]
    assert all(file.stat().st_size > 10_000 for file in files)


def test_every_configuration_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the real model, few requests: finite latencies in the shape of the space."""
    few = CPU_MODELS["inception"].replace(warm_up=0.0)
    monkeypatch.setattr(fig6, "CPU_MODELS", {"inception": few})

    monkeypatch.setattr(ParallelismSurface, "requests", 6.0)

    latency = quick(ParallelismSurface).measure(fig6.Surface("cpu", "inception", 14.0), 0)

    assert latency.shape == (11, 11, 11)
    assert np.isfinite(latency).all()
