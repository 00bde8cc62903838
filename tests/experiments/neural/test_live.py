"""Models that nobody tuned on before a real Triton, without one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock

import pytest

from tests.builders import SPACE, configuration, measurement
from tests.experiments.quick import quick
from tuner.experiments.frame.options import Watcher
from tuner.experiments.neural import live
from tuner.experiments.neural.bench import DEFAULT, MODELS, Bench, Tuned
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


def test_a_model_without_a_usable_window_is_tuned_without_a_recommendation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says so in one line; what the others have is summarised."""
    disturbed = replace(measurement(), disturbed=("reloading",))
    attachment = Mock(
        space=SPACE,
        backend=Mock(current=configuration),
        profiler=Mock(measure=lambda _: disturbed),
        host=Mock(cores=2.0),
    )
    held = Tuned([DEFAULT], DEFAULT, windows=1, failures=0)
    monkeypatch.setattr(live, "choose_bench", lambda model, *_: Bench(model, 100.0, 0.03))
    monkeypatch.setattr(live, "triton", lambda *_, **__: nullcontext(attachment))
    monkeypatch.setattr(live, "RRL", Mock())
    monkeypatch.setattr(live, "tune", lambda *_: held)
    monkeypatch.setattr(live, "ratios_to_best", lambda _, held, __: dict.fromkeys(held, 1.2))
    lines: list[str] = []

    result = quick(NeuralLive, watcher=Watcher(report=lines.append)).run()

    assert len([line for line in lines if "no window could be used (reloading)" in line]) == len(MODELS)
    assert [one["recommended"] for one in result.details["runs"]] == [None] * len(MODELS)
    assert result.rows[0].id == "small, cold: windows until within 10 %, for good"
