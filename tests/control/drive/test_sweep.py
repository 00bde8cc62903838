"""The sweep of a grid: what the server cannot run does not end it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest
import tritonclient.grpc as tritongrpc

from tests.adapters.triton.test_completed import Completing
from tests.adapters.triton.test_deployed_anew import MODEL
from tests.adapters.triton.test_limits import TARGET
from tests.builders import configuration, measurement
from tests.control.drive.driver_bed import FakeClock, FakeServer
from tuner.adapters.triton.backend import TritonBackend
from tuner.cli.sweep import to_measure
from tuner.control.drive.sweep import SweepResult, SweepRow, measure_configurations
from tuner.errors import Refused, Unreachable
from tuner.measurement import Measurement


class Still:
    """Measures a quiet window at once."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        return measurement()


def test_what_the_server_is_known_to_refuse_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Triton that completes configurations is asked for no batch of 1 a second time; the others follow."""
    server = Completing(MODEL.format(8))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET, {"max_batch_size": (1.0, 4.0), "instances": (1.0, 2.0)})) as backend:
        found = backend.current()
        grid = to_measure(backend.space, ["max_batch_size", "instances"], found)

        swept = list(
            measure_configurations(backend, Still(), grid, seconds=1.0, repeats=2, restore=backend.restore)
        )

        assert backend.current() == found
    assert [wanted for wanted, _ in swept] == grid * 2
    for wanted, outcome in swept:
        assert isinstance(outcome, Measurement) == (wanted["max_batch_size"] > 1)
        assert isinstance(outcome, Measurement) or "adds dynamic batching by itself" in str(outcome)


QUIET, NOISY = measurement(), measurement(disturbed=("foreign CPU 0.9 cores",))


class Scripted:
    """Measures what a test says, and notes how long it waited before."""

    def __init__(self, *windows: Measurement) -> None:
        self.windows = list(windows)
        self.settled: list[float] = []

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        self.settled.append(settle)
        return self.windows.pop(0)


def test_a_disturbed_window_is_measured_again_but_not_for_ever() -> None:
    """Only after a change the server has to settle; the last window counts, disturbed or not."""
    server = FakeServer(FakeClock(), lambda _: 0.020)
    profiler = Scripted(QUIET, NOISY, QUIET, NOISY, NOISY, NOISY)
    grid = [configuration(1), configuration(2), configuration(4)]

    swept = list(measure_configurations(server, profiler, grid, seconds=5.0, restore=lambda: None))

    assert [outcome for _, outcome in swept] == [QUIET, QUIET, NOISY]
    assert profiler.settled == [0.0, 1.5, 0.0, 1.5, 0.0, 0.0]


def test_what_ran_before_a_sweep_is_restored_however_it_ends() -> None:
    """A configuration that the server refuses does not end it; a server that goes away does."""
    server, restored = FakeServer(FakeClock(), lambda _: 0.020), []
    server.refuses = {configuration(2)}
    grid = [configuration(1), configuration(2), configuration(4)]
    sweep = measure_configurations(server, server, grid, seconds=5.0, restore=lambda: restored.append(True))

    assert isinstance(next(sweep)[1], Measurement)
    assert isinstance(next(sweep)[1], Refused)
    server.away_until = math.inf
    with pytest.raises(Unreachable):
        next(sweep)
    assert restored == [True]


def row(batch: float, *windows: tuple[float, Sequence[str]]) -> SweepRow:
    """A configuration with windows of these p95 latencies, s."""
    jsons = [replace(measurement(p95), disturbed=tuple(why)).to_json() for p95, why in windows]
    return SweepRow(configuration=dict(configuration(batch)), windows=jsons)


def test_disturbed_windows_count_only_where_there_are_no_others() -> None:
    """A configuration of which each window was disturbed comes last, and says why."""
    noise = ["noise"]
    slow = row(1, (0.030, []), (0.050, []), (0.040, []), (0.001, noise))
    fast = row(2, (0.020, []), (0.900, noise))
    unsure = row(4, (0.010, noise), (0.012, ["more noise"]))
    refused = SweepRow(configuration=dict(configuration(8)), refused="out of memory")
    rows = [refused, unsure, slow, fast]
    result = SweepResult(
        command="", started="", target="", server="", model="", rate=None, seconds=5.0, repeats=3, knobs=[],
        rows=rows,
    )  # fmt: skip

    assert result.ranked() == [fast, slow, unsure]
    assert [one.median("latency_p95") for one in (fast, slow, unsure)] == pytest.approx([0.02, 0.04, 0.011])
    assert [one.disturbance for one in rows] == ["", "more noise", "", ""]
    assert math.isnan(refused.median("latency_p95"))
