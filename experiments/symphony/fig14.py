"""Symphony, Figure 14: advice for the autoscaler of 512 accelerators under a changing load of 24 models.

The paper's rates come from 150 hours of video, which are not public; ours rise and fall, each model at its
own pace, and all of them together once above what the cluster can serve. Advice is given and not followed. It
is made from an interval, and judged by the next one: whether that is good where it was not to scale up.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tuner.cluster import Scenario
from tuner.cluster.epochs import EpochRecord, simulate_epochs
from tuner.cluster.scenario import Session
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["ScalingAdviceOfACluster"]

MODELS = 24
EPOCH = 10.0
"""s between two pieces of advice."""
STEP = 5.0
"""s between two changes of the rates."""
LOW, HIGH, PEAK = 0.4, 1.0, 1.7
"""Load relative to batches that take half of each SLO: it moves between two, and is higher for a sixth."""
MOST_BAD = 1.0
"""% after the advice not to scale up: our target; the paper shows a low one, without a number."""


@experiment(
    name="symphony-fig14",
    title="Advice for 512 accelerators under a changing load",
    paper="Symphony",
    minutes=3,
)
class ScalingAdviceOfACluster(OneTaskExperiment[tuple[EpochRecord, ...]]):
    """One run for each seed; every interval of it has its bad rate and its advice."""

    accelerators = Scaled(512, quick=48)
    seconds = Scaled(120.0, quick=60.0)

    def measure(self, _: None, seed: int) -> tuple[EpochRecord, ...]:
        scenario = Scenario(
            planner="symphony",
            epoch_s=EPOCH,
            accelerators=self.accelerators,
            sessions=tuple(changing_sessions(self.accelerators, self.seconds, seed)),
            seconds=self.seconds,
            warmup_seconds=0.0,
            seed=seed,
        )
        return simulate_epochs(scenario, fixed=True).records

    def rows(self, found: Answers[None, tuple[EpochRecord, ...]]) -> Iterator[Row]:
        runs = found[None]
        judged = [after_no_advice(run) for run in runs]
        yield row("intervals after the advice not to scale up", [float(len(own)) for own in judged])
        bad = [[100 * one.bad / max(one.requests, 1) for one in own] for own in judged]  # %
        below = [100 * float(np.mean([rate < MOST_BAD for rate in own])) for own in bad]
        yield row(f"of those, with less than {MOST_BAD:g} % bad", below, unit="%", note="our target: 100")
        yield row("bad rate, the median of those", [float(np.median(own)) for own in bad], unit="%")
        yield row("bad rate, the worst of those", [max(own) for own in bad], unit="%")
        for name, choose in (("fewest", min), ("most", max)):
            wanted = [float(choose(one.desired for one in run)) for run in runs]
            yield row(f"{name} accelerators desired", wanted, note=f"of {self.accelerators}")

    def series(self, found: Answers[None, tuple[EpochRecord, ...]]) -> Iterator[Series]:
        runs = found[None]
        times = [one.time for one in runs[0]]
        columns: list[tuple[str, list[list[float]]]] = [
            ("accelerators desired", [[float(run[k].desired) for run in runs] for k in range(len(times))]),
            (
                "in use",
                [[run[k].accelerators * (1 - run[k].idle) for run in runs] for k in range(len(times))],
            ),
            (
                "bad",
                [[100 * run[k].bad / max(run[k].requests, 1) for run in runs] for k in range(len(times))],
            ),
        ]
        for name, values in columns:
            yield curve(name, times, values, panel="bad" if name == "bad" else "accelerators")

    def configuration(self) -> dict[str, Any]:
        return {
            "models": MODELS,
            "load": [LOW, HIGH, PEAK],
            "epoch": EPOCH,
            "accelerators": self.accelerators,
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the advice and the bad rate along the time."""
        figure, axes = style.figure("A changing load, and advice", columns=2)
        for axis, panel, label in zip(
            axes.flat, ("accelerators", "bad"), ("accelerators", "late or dropped, %"), strict=True
        ):
            style.curves(axis, result.panel(panel))
            axis.set(xlabel="s", ylabel=label)
        style.legend(axes.flat[0])
        return [style.Drawing(figure)]


def after_no_advice(run: tuple[EpochRecord, ...]) -> list[EpochRecord]:
    """Return the intervals before which the advice was not to scale up."""
    return [later for earlier, later in pairwise(run) if earlier.desired <= earlier.accelerators]


def changing_sessions(accelerators: int, seconds: float, seed: int) -> list[Session]:
    """Return the models with their rates along the time."""
    rng = np.random.default_rng(seed)
    times = np.arange(0.0, seconds, STEP)
    total = LOW + (HIGH - LOW) * (1 - np.cos(2 * np.pi * times / seconds * 2)) / 2
    total[(times >= seconds * 7 / 12) & (times < seconds * 9 / 12)] = PEAK
    phases, paces = rng.uniform(0, 2 * np.pi, MODELS), rng.integers(1, 4, MODELS)
    shares = 1 + 0.6 * np.sin(np.outer(paces, 2 * np.pi * times / seconds) + phases[:, None])  # (M, T)
    shares /= shares.sum(axis=0)
    sessions = []
    for one, own in zip(GTX_1080TI[:MODELS], shares * total * accelerators, strict=True):
        session = one.session()
        batch = max((session.slo_ms / 2 - one.beta_ms) / one.alpha_ms, 1.0)
        peak = 1e3 * batch / (one.alpha_ms * batch + one.beta_ms)  # requests/s of an accelerator
        rates = tuple(zip(times.tolist(), (own * peak).tolist(), strict=True))
        sessions.append(session.model_copy(update={"rate": rates}))
    return sessions
