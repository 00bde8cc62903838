"""The gateway's word: what the indicator of the daemon hears from it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.experiments.daemon.gateway import mean_latency, serve_latency
from tuner.profiler.indicator import PrometheusIndicator


def answering(*latencies: float) -> tuple[Any, list[float]]:
    """Clients that got these answers, and the lengths of the intervals they were asked for."""
    asked: list[float] = []

    def answered(start: float, end: float) -> np.ndarray:
        asked.append(end - start)
        return np.array(latencies)

    return SimpleNamespace(answered=answered), asked


def test_the_daemon_hears_the_mean_of_the_window() -> None:
    """Of the server it asks for, over the window it asks for."""
    (fast, asked), (slow, _) = answering(0.010, 0.020), answering(1.0)
    with serve_latency({"fast": fast, "slow": slow}) as address:
        indicator = PrometheusIndicator(url=address, query=mean_latency("fast"), statistic="mean")

        assert indicator.read(2.0) == pytest.approx({"mean": 0.015})
        assert asked == pytest.approx([2.0])


def test_without_an_answer_there_is_no_value() -> None:
    """The window is then not used."""
    with serve_latency({"idle": answering()[0]}) as address:
        found = PrometheusIndicator(url=address, query=mean_latency("idle"), statistic="mean").read(1.0)

    assert np.isnan(found["mean"])


def test_another_query_is_refused() -> None:
    """It is no Prometheus."""
    with serve_latency({}) as address, pytest.raises(InvalidInput, match="unknown query"):
        PrometheusIndicator(url=address, query="up").check(1.0)
