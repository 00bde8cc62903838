"""The estimator before a real Triton: models that nobody tuned on, and how soon the best is found and kept.

For each model a fresh server gets a load that its default configuration hardly bears. Two windows are
watched, as by `tuner recommend`; then the control loop tunes, cold. What it learned goes to another fresh
server, warm. All that was recommended or held is measured in turns with the best of it and of a coarse grid,
because the speed of a machine drifts; other rounds choose that best.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tuner.agents.rrl import RRL
from tuner.errors import InvalidInput
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import objective, repeated, triton
from tuner.experiments.live.triton_convergence import windows_to_converge
from tuner.experiments.neural.bench import (
    MODELS,
    NEAR,
    WINDOW,
    Bench,
    choose_bench,
    ratios_to_best,
    tune,
)
from tuner.laboratory.advice import Advice, advise
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.profiler.attachment import Attachment

__all__ = ["NeuralLive"]

WATCHED_WINDOWS = 2
"""Before the first recommendation."""
RECOMMENDED_NEAR = 1.15


class ModelRun(NamedTuple):
    """What came of a model: per counted window p95 of what was held, over the best."""

    bench: Bench
    advice: dict[str, object]
    """What was recommended, and why; empty if nothing was."""
    recommended: float | None
    """None if no window could be used for a recommendation."""
    cold: list[float]
    warm: list[float]
    failures: int


@experiment(
    name="neural-live",
    title="A real Triton with models that nobody tuned on: windows until the best is found and kept",
    minutes=54,
    live=True,
    shown=40,
)
class NeuralLive(OneTaskExperiment[list[ModelRun]]):
    """Watches, tunes cold and warm, and measures in turns what was held: model by model, seed by seed."""

    cold = Scaled(12, quick=4)
    warm = Scaled(6, quick=2)
    """Windows that count."""
    rounds = Scaled(3, quick=1)

    def measure(self, _: None, seed: int) -> list[ModelRun]:
        return [repeated(partial(self._run, model, seed), self.report) for model in MODELS]

    def rows(self, found: Answers[None, list[ModelRun]]) -> Iterator[Row]:
        runs = _all_runs(found)
        if first := [one.recommended for one in runs if one.recommended is not None]:
            near = 100 * sum(one <= RECOMMENDED_NEAR for one in first) / len(first)
            yield row("first recommendation: p95 over the best", first, published=RECOMMENDED_NEAR)
            yield row("first recommendation within 15 %", [near], unit="%", published=80.0)
        for model in MODELS:
            ones = [one for one in runs if one.bench.model == model]
            note = f"{ones[0].bench.rate:.0f} requests/s, p95 within {1e3 * ones[0].bench.slo:.0f} ms"
            for kind, limit in (("cold", 4.0), ("warm", 2.0)):
                traces = [getattr(one, kind) for one in ones]
                windows = [windows_to_converge(trace, near=NEAR) for trace in traces]
                name = f"{model}, {kind}: windows until within 10 %, for good"
                yield row(name, windows, unit="windows", published=limit, note=note)
                yield row(f"{model}, {kind}: p95 at the end, over the best", [t[-1] for t in traces],
                          published=NEAR)  # fmt: skip
        yield row("failed requests", [float(one.failures) for one in runs], published=0.0)

    def configuration(self) -> dict[str, Any]:
        return {"models": list(MODELS), "window": WINDOW, "cold": self.cold, "warm": self.warm}

    def details(self, found: Answers[None, list[ModelRun]]) -> dict[str, Any]:
        return {"runs": [one._asdict() | {"bench": one.bench._asdict()} for one in _all_runs(found)]}

    def _run(self, model: str, seed: int) -> ModelRun:
        bench = choose_bench(model, seed, self.report)
        with tempfile.TemporaryDirectory(prefix="servetune-policy-") as folder:
            with triton(bench.rate, seed=seed, model=model) as attachment:
                goal = objective(attachment, slo=bench.slo)
                advice = self._advise(attachment, goal, model)
                agent = RRL(attachment.space, objective=goal, seed=seed)
                cold = tune(attachment, agent, goal, self.cold, self._about(f"{model}, cold"))
                agent.save(Path(folder))
                agent.close()
            with triton(bench.rate, seed=seed + 1, model=model) as attachment:
                agent = RRL.load(Path(folder), attachment.space, seed=seed)
                warm = tune(attachment, agent, goal, self.warm, self._about(f"{model}, warm"))
                agent.close()
        advised = [] if advice is None else [advice.configuration]
        ratios = ratios_to_best(bench, [*advised, *cold.held, *warm.held], self.rounds)
        return ModelRun(
            bench=bench,
            advice={} if advice is None else advice.to_json(),
            recommended=None if advice is None else ratios[advice.configuration],
            cold=[ratios[one] for one in cold.held],
            warm=[ratios[one] for one in warm.held],
            failures=cold.failures + warm.failures,
        )

    def _advise(self, attachment: Attachment, goal: Objective, model: str) -> Advice | None:
        """Watch, and recommend; None, and a line that says why, if no window can be used."""
        windows = _undisturbed(attachment)
        try:
            return advise(attachment.space, goal, attachment.backend.current(), windows)
        except InvalidInput as error:
            self.report(f"{model}: nothing is recommended, and tuning begins: {error}")
            return None

    def _about(self, what: str) -> Callable[[str], None]:
        """Return a report of what is being done."""
        return lambda line: self.report(f"{what}  {line}")


def _all_runs(found: Answers[None, list[ModelRun]]) -> list[ModelRun]:
    return [run for runs in found[None] for run in runs]


def _undisturbed(attachment: Attachment) -> list[Measurement]:
    """Measure until enough windows can be used, but not for ever."""
    windows: list[Measurement] = []
    for _ in range(4 * WATCHED_WINDOWS):
        windows.append(attachment.profiler.measure(WINDOW))
        if sum(not one.disturbed for one in windows) == WATCHED_WINDOWS:
            break
    return windows
