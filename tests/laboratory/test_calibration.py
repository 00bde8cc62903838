"""Tests of measuring a model of a server, whichever kind it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.envs.batched_server import BatchedServer, measure_servers
from tuner.envs.simulator import models, tfserving_calibration
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.envs.simulator.tfserving_gpu import TFServingGPU
from tuner.errors import InvalidInput
from tuner.laboratory import calibration
from tuner.laboratory.calibration import measure_model, measure_server_model
from tuner.measurement import Measurement
from tuner.profiler.attachment import attach
from tuner.setting import Load


def attached(model: Any, rate: float) -> Any:
    """What is asked of an attachment, over a simulated server."""
    space = model.space()
    simulator = BatchedSimulator(model.plans(space), model.traffic())
    server = BatchedServer(model, space, np.array([rate]), seed=1)
    original = server.current()
    return SimpleNamespace(
        space=space,
        backend=server,
        profiler=SimpleNamespace(
            measure=lambda seconds, settle: measure_servers(simulator, [server], seconds)[0]
        ),
        host=SimpleNamespace(cores=10.0),
        restore=lambda: server.apply(original),
    )


@pytest.mark.parametrize(
    ("model", "rate", "name"),
    [(TFServingCPU(work=0.2), 8.0, "work"), (TFServingGPU(beta=0.02), 40.0, "beta")],
)
def test_the_knobs_tell_the_kind(model: Any, rate: float, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is measured in a few configurations and described by a model of its kind, then put back."""
    monkeypatch.setattr(tfserving_calibration, "ROUNDS", 1)
    monkeypatch.setattr(tfserving_calibration, "REQUESTS", 60.0)
    monkeypatch.setattr(tfserving_calibration, "SEARCHED", {type(model): (name,)})
    attachment = attached(model, rate)

    fitted, windows = measure_model(attachment, 5.0)

    assert fitted.kind == model.kind
    assert getattr(fitted, name) == pytest.approx(getattr(model, name), rel=0.2)
    assert len(windows) > 4
    assert attachment.backend.current() == model.space().default


def test_several_loads_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the first load everything is measured, under others what makes batches; then it is as before."""
    monkeypatch.setattr("tuner.envs.simulator.calibration.calibrate", lambda windows, cores, base: base)
    with attach("sim://mlp", load=Load(rate=80.0)) as attachment:
        _, windows = measure_server_model(attachment, 1.0, rates=(100.0, 250.0), rounds=2)

        assert attachment.rate == 100.0
        assert attachment.backend.current() == attachment.original
    few, many = len(models.BATCHER), models.BATCHED
    assert len(windows) == 2 * (few + many)
    assert [m.configuration["max_batch_size"] > 1 for m in windows[few : few + many]] == [True] * many
    assert all(m.arrival_rate > 180 for m in windows[few : few + many])
    assert all(m.arrival_rate < 150 for m in windows[:few])


@pytest.mark.parametrize("server", ["triton", "tfserving"])
def test_a_batching_server_keeps_its_name(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the fit begins with: the file says what was measured."""
    monkeypatch.setattr("tuner.envs.simulator.calibration.calibrate", lambda windows, cores, base: base)
    with attach("sim://mlp", load=Load(rate=80.0)) as attachment:
        attachment.description = replace(attachment.description, server=server, model="resnet50")

        model, _ = measure_server_model(attachment, 1.0)

    assert model.name == "resnet50"
    assert model.closing == (0.0 if server == "tfserving" else 0.5)


@pytest.mark.parametrize("model", [None, TFServingCPU(), TFServingGPU()], ids=["triton", "cpu", "gpu"])
def test_a_server_that_answered_nothing(model: Any) -> None:
    """Of any kind: either nobody sends requests, or none of ours was answered in so short a time."""
    rate = 1e-6
    with attach("sim://mlp", load=Load(rate=rate)) as batching:
        attachment: Any = batching if model is None else attached(model, rate)
        attachment.set_rate = lambda _: None

        with pytest.raises(
            InvalidInput, match=r"no request was answered .*; send some \(--rate\).*--seconds"
        ):
            measure_model(attachment, 1.0)
        with pytest.raises(
            InvalidInput, match=r"no request was answered .*; make windows longer \(--seconds"
        ):
            measure_model(attachment, 1.0, rates=(rate,))


@pytest.mark.parametrize(
    ("model", "words"),
    [(None, "no undisturbed window in which requests were executed"), (TFServingCPU(), "lower the load")],
    ids=["triton", "tfserving"],
)
def test_a_server_that_was_always_disturbed(model: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests, or longer windows, would not help."""
    measure = calibration._measure

    def disturbed(*arguments: Any) -> list[Measurement]:
        return [replace(m, disturbed=("foreign CPU",)) for m in measure(*arguments)]

    monkeypatch.setattr(calibration, "_measure", disturbed)
    with attach("sim://mlp", load=Load(rate=80.0)) as batching:
        attachment = batching if model is None else attached(model, 8.0)

        with pytest.raises(InvalidInput, match=words) as refusal:
            measure_model(attachment, 1.0)

    assert "--" not in str(refusal.value)


def test_a_load_that_is_not_ours_cannot_be_changed() -> None:
    """Two loads need a load generator."""
    with attach("sim://mlp", load=Load(rate=80.0)) as attachment:
        attachment.load = None

        with pytest.raises(InvalidInput, match="rate"):
            measure_server_model(attachment, 1.0, rates=(100.0,))
