"""The benchmark of the dispatcher's fronts."""

from __future__ import annotations

import pytest

from tuner.experiments.benchmarks import fronts
from tuner.experiments.benchmarks.report import BenchOptions


def test_every_way_has_a_rival_and_fronts_their_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are compared with rates, latencies with latencies."""
    monkeypatch.setattr(fronts, "_measure", lambda name, requests: (2000.0, 0.001))

    rows = fronts.run(BenchOptions(repeats=1, quick=True))

    assert [row.ratio for row in rows] == [1.0] * (len(fronts.WAYS) + 4)
    assert {row.unit for row in rows} == {"requests/s per core", "ms"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for way in fronts.WAYS.values() for name in way[:2]}))
def test_every_server_answers(name: str) -> None:
    """And the time that it is on a core is seen."""
    rate, latency = fronts._measure(name, 64)

    assert 10 < rate < 100_000
    assert 0 < latency < 1
