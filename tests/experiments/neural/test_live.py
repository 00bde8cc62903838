"""Models that nobody tuned on before a real Triton, without one."""

from __future__ import annotations

import pytest

from tests.experiments.quick import quick
from tuner.experiments.neural.bench import MODELS, Bench
from tuner.experiments.neural.live import ModelRun, NeuralLive


def test_ctrl_c_keeps_the_seeds_of_which_all_models_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a quarter of an hour; the result is that of a run with so many seeds."""

    def run(_: NeuralLive, model: str, seed: int) -> ModelRun:
        if (model, seed) == (MODELS[1], 2):
            raise KeyboardInterrupt
        return ModelRun(Bench(model, 100.0, 0.03), {}, 1.0 + seed, [1.0], [1.0], failures=0)

    monkeypatch.setattr(NeuralLive, "_run", run)
    stopping = quick(NeuralLive, seeds=3)

    result = stopping.run()

    assert stopping.stopped
    assert result == quick(NeuralLive, seeds=2).run()
    assert [(one["bench"]["model"], one["recommended"]) for one in result.details["runs"]] == [
        (model, 1.0 + seed) for seed in range(2) for model in MODELS
    ]
