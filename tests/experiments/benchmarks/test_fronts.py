"""The benchmark of the dispatcher's fronts."""

from __future__ import annotations

import sys

import pytest

from tests.command_line import Run
from tuner.errors import AdapterError
from tuner.experiments.benchmarks import fronts
from tuner.experiments.benchmarks.fronts import servers
from tuner.experiments.benchmarks.report import BenchOptions


def test_every_way_has_a_rival_and_fronts_their_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are compared with rates, latencies with latencies."""
    monkeypatch.setattr(fronts, "check_installed", lambda *_: None)
    monkeypatch.setattr(fronts, "_measure", lambda name, requests: (2000.0, 0.001))

    rows = fronts.run(BenchOptions(repeats=1, quick=True))

    assert [row.ratio for row in rows] == [1.0] * (len(fronts.WAYS) + 4)
    assert {row.unit for row in rows} == {"requests/s per core", "ms"}


def test_what_is_not_installed_is_said_before_anything_is_measured(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how to install it."""
    monkeypatch.setitem(sys.modules, "pygrpc_native", None)

    ended = run("bench", "fronts", "--quick", "--repeats", "1")

    assert ended.code == 2
    assert "error: fronts: needs pygrpc_native, which is not installed" in ended.err
    assert "[native]" in ended.err


def test_a_server_that_ends_before_it_listens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened there it says itself."""
    monkeypatch.setattr(servers, "_serve", abs)  # takes no pipe: the process ends at once

    with pytest.raises(AdapterError, match="the server front-grpc ended before it listened"):
        servers.FrontProcess("front-grpc").__enter__()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for way in fronts.WAYS.values() for name in way[:2]}))
def test_every_server_answers(name: str) -> None:
    """And the time that it is on a core is seen."""
    rate, latency = fronts._measure(name, 64)

    assert 10 < rate < 100_000
    assert 0 < latency < 1
