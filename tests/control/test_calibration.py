"""Tests of measuring a model of a server, whichever kind it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.control.calibration import measure_model
from tuner.envs.rack_server import RackServer, measure_servers
from tuner.envs.simulator import rack_calibration
from tuner.envs.simulator.rack import Rack
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TFServingGPU


def attached(model: Any, rate: float) -> Any:
    """What is asked of an attachment, over a simulated server."""
    space = model.space()
    rack = Rack(model.plans(space), model.traffic())
    server = RackServer(model, space, np.array([rate]), seed=1)
    original = server.current()
    return SimpleNamespace(
        space=space,
        backend=server,
        profiler=SimpleNamespace(measure=lambda seconds, settle: measure_servers(rack, [server], seconds)[0]),
        host=SimpleNamespace(cores=10.0),
        restore=lambda: server.apply(original),
    )


@pytest.mark.parametrize(
    ("model", "rate", "name"),
    [(TFServingCPU(work=0.2), 8.0, "work"), (TFServingGPU(beta=0.02), 40.0, "beta")],
)
def test_the_knobs_tell_the_kind(model: Any, rate: float, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is measured in a few configurations and described by a model of its kind, then put back."""
    monkeypatch.setattr(rack_calibration, "ROUNDS", 1)
    monkeypatch.setattr(rack_calibration, "REQUESTS", 60.0)
    monkeypatch.setattr(rack_calibration, "SEARCHED", {type(model): (name,)})
    attachment = attached(model, rate)

    fitted, windows = measure_model(attachment, 5.0)

    assert fitted.kind == model.kind
    assert getattr(fitted, name) == pytest.approx(getattr(model, name), rel=0.2)
    assert len(windows) > 4
    assert attachment.backend.current() == model.space().default
