"""Tests of the model of TensorFlow Serving on a GPU, and of the relations that RRL's Fig. 5 shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tuner.envs.simulator.batched import BatchedSimulator, WindowArrays
from tuner.envs.simulator.tfserving_gpu import GPU_MODELS, TFServingGPU
from tuner.errors import InvalidInput

MODEL = TFServingGPU()


def shown(
    configurations: Sequence[tuple[float, float, float]],
    rate: float = 61.0,
    model: TFServingGPU = MODEL,
    seconds: float = 33.0,
) -> WindowArrays:
    """Measure configurations (batch size, timeout, threads), the same arrivals for all."""
    space = model.space()
    simulator = BatchedSimulator(model.plans(space), model.traffic())
    names = ("max_batch_size", "batch_timeout", "batch_threads")
    numbers = np.array([space.encode(dict(zip(names, c, strict=True))) for c in configurations])
    return simulator.step(numbers, np.full(len(numbers), rate), np.full(len(numbers), 3, np.uint64), seconds)


def test_space() -> None:
    """There are 1,331 configurations; single requests wait for no timeout."""
    space = MODEL.space()

    assert space.size == 1331
    assert space.distinct.size == 1331 - 10 * 11


def test_zero_stands_for_what_the_machine_shows() -> None:
    """0 batch threads are as many as the machine shows cores."""
    assert MODEL.plans(MODEL.space()).instances[0] == 20


def test_figure_5() -> None:
    """With batches of 50 a few threads keep 520 ms; many need a timeout; one per core is hopeless."""
    good, timed, alone, eager, automatic = shown(
        [(50, 0.02, 2), (50, 0.05, 8), (50, 0.0, 1), (50, 0.0, 8), (50, 0.0, 0)]
    ).p95

    assert good < timed < alone < 0.52
    assert eager > 3 * good
    assert automatic > 5 * eager


def test_timeout_makes_batches() -> None:
    """A longer timeout makes batches larger, and the GPU's work less."""
    short, long = (0, 1)
    arrays = shown([(50, 0.0, 2), (50, 0.05, 2)])

    assert arrays.batch_mean[long] > arrays.batch_mean[short]
    assert arrays.gpu[long] < arrays.gpu[short]
    assert np.isfinite(arrays.cpu).all()


def test_optimum_moves_with_the_load() -> None:
    """At a low load requests should not wait for each other; at a high one they should."""
    few = shown([(50, 0.0, 3), (50, 0.04, 3)], rate=9.0, seconds=100.0).p95
    many = shown([(50, 0.0, 3), (50, 0.04, 3)], rate=71.0, seconds=100.0).p95

    assert few[0] < few[1]
    assert many[1] < many[0]


def test_padding_wastes_work() -> None:
    """Where sizes differ the batch waits for its largest: batching gains less."""
    pair = [(4, 0.0, 1), (1, 0.0, 1)]
    alike = shown(pair, rate=40.0, model=MODEL.replace(alpha=0.0))
    differing = shown(pair, rate=40.0, model=MODEL.replace(alpha=0.0, sizes=0.6))

    assert differing.compute_mean[0] / alike.compute_mean[0] > 1.2
    assert differing.compute_mean[1] / alike.compute_mean[1] == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("name", GPU_MODELS)
def test_nominal_load_can_be_served(name: str) -> None:
    """At its nominal load every named model keeps 520 ms under some configuration, not with 20 threads."""
    p95 = shown([(6, 0.03, 2), (50, 0.0, 0)], model=GPU_MODELS[name]).p95

    assert p95[0] < 0.52 < p95[1]


def test_file_round_trip(tmp_path: Path) -> None:
    """A model is the same after being written and read."""
    model = GPU_MODELS["deepspeech"]
    model.save(tmp_path / "model.json")

    assert TFServingGPU.load(tmp_path / "model.json") == model


@pytest.mark.parametrize("change", [{"beta": 0.0}, {"occupancy": 0.0}, {"occupancy": 1.5}, {"alpha": -1.0}])
def test_bad_values(change: dict[str, float]) -> None:
    """A value out of its range is refused by name."""
    with pytest.raises(InvalidInput, match=next(iter(change))):
        MODEL.replace(**change)


@pytest.mark.parametrize(
    "grids",
    [
        {"max_batch_size": (0.0, 4.0)},
        {"max_batch_size": (2.5,)},
        {"batch_timeout": (-1.0, 0.0)},
        {"batch_threads": (100.0,)},
        {"batch_threads": (float("nan"),)},
        {"batch_threads": ()},
        {"threads": (1.0,)},
    ],
)
def test_bad_grids(grids: dict[str, tuple[float, ...]]) -> None:
    """A grid that cannot be simulated is refused by the knob's name."""
    with pytest.raises(InvalidInput, match=next(iter(grids))):
        MODEL.space(grids)
