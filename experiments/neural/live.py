"""The estimator before a real Triton: models that nobody tuned on, and how soon the best is found and kept.

For each model a fresh server gets a load that its default configuration hardly bears. Two windows are
watched, as by `tuner recommend`; then the control loop tunes, cold. What it learned goes to another fresh
server, warm. All that was recommended or held is measured in turns with a coarse grid, beside each other,
because the speed of a machine drifts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tuner.agents.rrl import RRL
from tuner.control import WATCHED, ControlLoop, Driver, Watched
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import distinct, measure_in_turns, objective, triton
from tuner.experiments.live.triton_convergence import windows_to_converge
from tuner.knobs import Configuration
from tuner.laboratory.advice import advise
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.profiler.attachment import Attachment

__all__ = ["NeuralLive"]

MODELS = ("small", "cnn", "wide")
"""Models of unlike l(b); the demo's is not among them."""
PROBES = 10.0
"""Rate under which the time of an execution is measured first, requests/s."""
SHARE, MOST = 0.85, 400.0
"""The load beside what one instance bears without batching, and at most, requests/s."""
SLACK, LEAST_SLO = 4.0, 0.010
"""The SLO beside the time of an execution, and at least, s."""
WINDOW, WATCHED_WINDOWS = 5.0, 2
CHECK, ROUNDS = 4.0, 3
"""Length of a window in turns, s, and rounds."""
NEAR, RECOMMENDED_NEAR = 1.10, 1.15


class Bench(NamedTuple):
    """What a model is asked to do."""

    model: str
    rate: float
    """requests/s"""
    slo: float
    """s, of the p95"""


class ModelRun(NamedTuple):
    """What came of a model: per counted window p95 of what was held, over the best."""

    bench: Bench
    recommended: float
    cold: list[float]
    warm: list[float]
    failures: int


@experiment(
    name="neural-live",
    title="A real Triton with models that nobody tuned on: windows until the best is found and kept",
    minutes=16,
    live=True,
    shown=40,
)
class NeuralLive(SequentialExperiment[list[ModelRun]]):
    """Watches, tunes cold and warm, and measures in turns what was held: model by model."""

    cold = Scaled(12, quick=4)
    warm = Scaled(6, quick=2)
    """Windows that count."""
    rounds = Scaled(ROUNDS, quick=1)

    def proceed(self) -> list[ModelRun]:
        return [self._run(model, seed) for seed in range(self.options.seeds) for model in MODELS]

    def rows(self, found: Answers[None, list[ModelRun]]) -> Iterator[Row]:
        (runs,) = found[None]
        first = [one.recommended for one in runs]
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
        (runs,) = found[None]
        return {"runs": [one._asdict() | {"bench": one.bench._asdict()} for one in runs]}

    def _run(self, model: str, seed: int) -> ModelRun:
        bench = self._bench(model, seed)
        with tempfile.TemporaryDirectory(prefix="servetune-policy-") as folder:
            with triton(bench.rate, seed=seed, model=model) as attachment:
                goal = objective(attachment, slo=bench.slo)
                windows = _undisturbed(attachment)
                recommended = advise(
                    attachment.space, goal, attachment.backend.current(), windows
                ).configuration
                agent = RRL(attachment.space, objective=goal, seed=seed)
                cold, lost = self._tune(attachment, agent, goal, self.cold, f"{model}, cold")
                agent.save(Path(folder))
                agent.close()
            with triton(bench.rate, seed=seed + 1, model=model) as attachment:
                agent = RRL.load(Path(folder), attachment.space, seed=seed)
                warm, lost_warm = self._tune(attachment, agent, goal, self.warm, f"{model}, warm")
                agent.close()
        ratios = self._ratios(bench, [recommended, *cold, *warm])
        return ModelRun(
            bench=bench,
            recommended=ratios[recommended],
            cold=[ratios[one] for one in cold],
            warm=[ratios[one] for one in warm],
            failures=lost + lost_warm,
        )

    def _bench(self, model: str, seed: int) -> Bench:
        """Measure how long a single request takes, and choose load and SLO by it."""
        with triton(PROBES, seed=seed, model=model) as attachment:
            seconds = attachment.profiler.measure(WINDOW).compute_mean
        bench = Bench(model, min(SHARE / seconds, MOST), max(SLACK * seconds, LEAST_SLO))
        self.report(f"{model}: {1e3 * seconds:.1f} ms, {bench.rate:.0f} r/s, p95 in {1e3 * bench.slo:.0f} ms")
        return bench

    def _tune(
        self, attachment: Attachment, agent: RRL, goal: Objective, windows: int, name: str
    ) -> tuple[list[Configuration], int]:
        """Return what the loop held for its best after each window that counts, and the failures."""
        loop = ControlLoop(attachment.space, goal, agent, limits=WATCHED)
        driver = Driver(
            Watched(attachment.backend, attachment.profiler, attachment.clock), loop, window=WINDOW
        )
        held: list[Configuration] = []
        failures = 0
        for _ in range(2 * windows):
            m = driver.step().measurement
            failures += m.failures if m is not None else 0
            if m is None or m.disturbed:
                continue
            held.append(loop.incumbent() or attachment.space.nearest(driver.running))
            p95, text = 1e3 * m.latency_p95, attachment.space.format(held[-1])
            self.report(f"{name}  {len(held)}/{windows}  p95 {p95:.1f} ms  incumbent {text}")
            if len(held) == windows:
                break
        return held or [attachment.space.nearest(driver.running)], failures

    def _ratios(self, bench: Bench, held: list[Configuration]) -> dict[Configuration, float]:
        """Return p95 over that of the best of a coarse grid and of all that was held."""
        with triton(bench.rate, quick=True, model=bench.model) as coarse:
            grid = distinct(coarse)
        with triton(bench.rate, model=bench.model) as attachment:
            found = measure_in_turns(
                attachment, list(dict.fromkeys([*grid, *held])), seconds=CHECK, rounds=self.rounds
            )
        p95 = {one: median(values) for one, values in found.items()}
        best = min(p95.values())
        return {one: value / best for one, value in p95.items()}


def _undisturbed(attachment: Attachment) -> list[Measurement]:
    """Measure until enough windows can be used, but not for ever."""
    windows: list[Measurement] = []
    for _ in range(4 * WATCHED_WINDOWS):
        windows.append(attachment.profiler.measure(WINDOW))
        if sum(not one.disturbed for one in windows) == WATCHED_WINDOWS:
            break
    return windows
