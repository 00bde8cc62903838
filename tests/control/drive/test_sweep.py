"""The sweep of a grid: what the server cannot run does not end it."""

from __future__ import annotations

import math
from contextlib import closing

import pytest
import tritonclient.grpc as tritongrpc

from tests.adapters.triton.test_completed import Completing
from tests.adapters.triton.test_deployed_anew import MODEL
from tests.adapters.triton.test_limits import TARGET
from tests.builders import measurement
from tuner.adapters.triton.backend import TritonBackend
from tuner.cli.sweep import to_measure
from tuner.control.drive.sweep import measure_configurations
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
    assert [configuration for configuration, _ in swept] == grid * 2
    for configuration, outcome in swept:
        assert isinstance(outcome, Measurement) == (configuration["max_batch_size"] > 1)
        assert isinstance(outcome, Measurement) or "adds dynamic batching by itself" in str(outcome)
