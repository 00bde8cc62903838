"""Tests of the model of TensorFlow Serving on a CPU, and of the relations that RRL's figures show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.envs.simulator.batched import BatchedSimulator, WindowArrays
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS, TFServingCPU, makespan
from tuner.errors import InvalidInput

MODEL = TFServingCPU()
PLAIN = MODEL.replace(fork=0.0, handoff=0.0, contention=0.0, spin=0.0)


def shown(
    model: TFServingCPU, rate: float, configurations: list[tuple[int, int, int]], seconds: float = 71.0
) -> WindowArrays:
    """Measure some configurations under one load, the same arrivals for all."""
    space = model.space()
    simulator = BatchedSimulator(model.plans(space), model.traffic())
    numbers = np.ravel_multi_index(tuple(np.array(configurations).T), space.shape)
    return simulator.step(numbers, np.full(len(numbers), rate), np.full(len(numbers), 3, np.uint64), seconds)


def test_one_thread_for_everything() -> None:
    """With one thread a run takes its work, and keeps one core busy."""
    run = MODEL.run(1, 1)

    assert run.seconds == pytest.approx(MODEL.work)
    assert run.cores == pytest.approx(1.0)


def test_amdahl() -> None:
    """Intra-op threads divide what can be divided, in whole blocks."""
    assert PLAIN.run(1, 4).seconds == pytest.approx(MODEL.work * (0.2 + 0.8 / 4))
    assert PLAIN.run(1, 7).seconds == pytest.approx(MODEL.work * (0.2 + 0.8 * 4 / 24))
    assert PLAIN.run(1, 6).seconds == PLAIN.run(1, 7).seconds


def test_width_limits_inter_op() -> None:
    """More inter-op threads than there are branches are of no use; the longest branch is the bound."""
    assert makespan((0.34, 0.28, 0.22, 0.16), 2) == pytest.approx(0.5)
    assert makespan((0.34, 0.28, 0.22, 0.16), 9) == pytest.approx(0.34)
    assert makespan((1.0,), 3) == 1.0


def test_threads_cost() -> None:
    """Threads beyond what is of use make a run longer and keep cores busy with nothing."""
    assert MODEL.run(10, 6).seconds > MODEL.run(4, 6).seconds
    assert MODEL.run(10, 6).cores > MODEL.run(4, 6).cores


def test_no_work_is_lost() -> None:
    """Without costs of threading, cores times seconds is the work."""
    for p in (1, 2, 5):
        for q in (1, 3, 8):
            run = PLAIN.run(p, q)
            assert run.seconds * run.cores == pytest.approx(MODEL.work)


def test_zero_stands_for_what_the_machine_shows() -> None:
    """0 is read as in TensorFlow: as many threads as the machine shows cores."""
    space = MODEL.space()
    plans = MODEL.plans(space)

    assert plans.instances[0] == 20
    assert plans.profile[0, 1] == pytest.approx(MODEL.run(20, 20).seconds)


def test_figure_3() -> None:
    """Under a load that one thread just carries, the best is around ten times faster than sequential."""
    some = [(1, 1, 1)] + [(r, p, q) for r in (2, 3, 4) for p in (2, 3) for q in (4, 6)]

    mean = shown(MODEL, 2.5, some, seconds=400.0).mean

    assert 6.0 < mean[0] / mean.min() < 20.0


def test_figure_4() -> None:
    """At 14 requests/s a good configuration keeps 550 ms with room; too few and too many threads are lost."""
    good, start, sequential, crowded, automatic = shown(
        MODEL, 14.0, [(3, 2, 6), (5, 5, 5), (1, 1, 1), (10, 10, 10), (0, 0, 0)]
    ).p95

    assert good < 0.35
    assert good < start < 2.0
    assert min(sequential, crowded, automatic) > 10.0


def test_optimum_moves_with_the_load() -> None:
    """Few requests are best run wide, many side by side."""
    wide, narrow = (3, 3, 6), (4, 1, 5)

    few, many = (shown(MODEL, rate, [wide, narrow], seconds=200.0).p95 for rate in (2.0, 16.7))

    assert few[0] < 0.9 * few[1]
    assert many[1] < many[0]


@pytest.mark.compiled
def test_neighbours_are_alike() -> None:
    """One step away latency differs far less than across the grid (Fig. 6)."""
    generator = np.random.default_rng(1)
    space = MODEL.space()
    first = generator.integers(1, 11, (40, 3))
    near = np.clip(first + generator.permuted(np.tile([1, 0, 0], (40, 1)), axis=1), 1, 10)
    far = generator.integers(1, 11, (40, 3))
    assert space.size == 1331

    p95 = shown(MODEL, 10.0, [tuple(c) for c in np.concatenate((first, near, far)).tolist()]).p95
    a, b, c = np.log(p95).reshape(3, 40)

    assert np.abs(b - a).mean() < 0.5 * np.abs(c - a).mean()


def test_heterogeneous_sizes_spread_latency() -> None:
    """Requests of different sizes have a longer tail, whatever the configuration."""
    p95, median = (
        getattr(shown(CPU_MODELS["deepspeech"], 5.0, [(4, 2, 4)], seconds=400.0), name)[0]
        for name in ("p95", "p50")
    )
    alike = shown(MODEL, 5.0, [(4, 2, 4)], seconds=400.0)

    assert p95 / median > 2.0 > alike.p95[0] / alike.p50[0]


@pytest.mark.parametrize("name", CPU_MODELS)
def test_nominal_load_can_be_served(name: str) -> None:
    """At its nominal load every named model keeps 550 ms under some configuration, not under the default."""
    model = CPU_MODELS[name]
    some = [(r, p, q) for r in (3, 4, 5) for p in (1, 2) for q in (3, 4, 6)] + [(10, 10, 10)]

    p95 = shown(model, model.rate, some, seconds=1000.0 / model.rate).p95

    assert p95.min() < 0.55 < p95[-1]


def test_file_round_trip(tmp_path: Path) -> None:
    """A model is the same after being written and read."""
    model = CPU_MODELS["deepspeech"]
    model.save(tmp_path / "model.json")

    assert TFServingCPU.load(tmp_path / "model.json") == model


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"work": 0.0}, "work"),
        ({"noise": -1.0}, "noise"),
        ({"serial": 1.5}, "serial"),
        ({"branches": ()}, "branches"),
        ({"branches": (1.0, 0.0)}, "branches"),
        ({"contention": float("nan")}, "contention"),
    ],
)
def test_bad_values(change: dict[str, object], named: str) -> None:
    """A value out of its range is refused by name."""
    with pytest.raises(InvalidInput, match=named):
        MODEL.replace(**change)


def test_every_knob_takes_zero_threads_and_no_more_than_64() -> None:
    """Threads of operations as well as requests at once."""
    for name in MODEL.space().names:
        assert MODEL.space({name: (0.0, 2.0, 4.0)}).knobs[MODEL.space().names.index(name)].default == 2.0
        with pytest.raises(InvalidInput, match=f"knob {name}: 65 is not between 0 and 64"):
            MODEL.space({name: (1.0, 65.0)})
