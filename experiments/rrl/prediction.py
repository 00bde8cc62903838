"""Predicted against measured latency, configuration by configuration, on a live server."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.agents.agent import State
from tuner.agents.load_levels import LoadLevels
from tuner.control.drive.sweep import measure_configurations
from tuner.envs.simulator.long_window import simulate
from tuner.envs.simulator.server import ServerModel
from tuner.experiments.frame.result import Row
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import STATISTICS, Measurement
from tuner.objective import Objective, unsaturated
from tuner.profiler.attachment import Attachment

if TYPE_CHECKING:
    from tuner.agents.rrl import RRL

__all__ = [
    "OVERLOAD",
    "Points",
    "PredictedPoint",
    "error_rows",
    "estimate",
    "estimated_rows",
    "measure_points",
    "predict",
    "taught",
]

OVERLOAD = 0.5
"""Configurations whose p95 is above this, s, cannot serve the load: their latency grows while they are
measured, and has no value to predict."""
TARGET, GOAL = 15.0, 9.0
"""Median error of p95 that is to be reached, and that is aimed at, %."""
FAR = 2.0
"""A prediction that is off by this factor is of no use."""
CORRELATION = 0.8
SIMULATED = 21
"""Windows simulated per prediction, each as long as the measured ones, of which the median counts: near the
highest load that a configuration bears, a queue grows for longer than a window lasts."""

Points = dict[Configuration, list[Measurement]]
"""Every window of each configuration, under one load."""


class PredictedPoint(NamedTuple):
    """A configuration under a load, predicted and measured."""

    rate: float
    """Requests/s."""
    configuration: Configuration
    predicted: Mapping[str, float]
    """Statistic -> s."""
    measured: Mapping[str, float]
    """Statistic -> s: the median of its windows."""
    repeats: Sequence[float]
    """p95 of each window, s."""

    @property
    def overloaded(self) -> bool:
        """Whether the server could not serve the load."""
        return not self.measured["p95"] < OVERLOAD

    def error(self, statistic: str) -> float:
        """Predicted over measured, less 1."""
        return self.predicted[statistic] / self.measured[statistic] - 1.0

    def to_json(self) -> dict[str, Any]:
        """Return plain values; latencies in ms."""
        return {
            "rate": self.rate,
            "configuration": dict(self.configuration),
            "predicted_ms": {name: round(1e3 * value, 3) for name, value in self.predicted.items()},
            "measured_ms": {name: round(1e3 * value, 3) for name, value in self.measured.items()},
            "p95_ms": [round(1e3 * value, 3) for value in self.repeats],
        }


def measure_points(
    attachment: Attachment,
    rate: float,
    configurations: Sequence[Configuration],
    *,
    seconds: float,
    rounds: int,
    seed: int,
    report: Callable[[str], None],
) -> Points:
    """Measure configurations in turns under one load; those that cannot serve it only once.

    The machine's speed drifts within minutes: every round has another order, lest neighbours in the grid are
    slow or fast together.

    Args:
        attachment: The server.
        rate: The load, requests/s.
        configurations: What is measured.
        seconds: Length of a window.
        rounds: How often each is measured.
        seed: Of the order.
        report: Called with a line for every window.
    """
    found: Points = {}
    generator = np.random.default_rng(seed)
    for _ in range(rounds):
        todo = [c for c in configurations if not any(m.latency_p95 > OVERLOAD for m in found.get(c, ()))]
        generator.shuffle(todo)
        attachment.set_rate(rate)
        turns = measure_configurations(
            attachment.backend, attachment.profiler, todo, seconds=seconds, restore=attachment.restore
        )
        for configuration, outcome in turns:
            assert isinstance(outcome, Measurement), outcome
            found.setdefault(configuration, []).append(outcome)
            report(
                f"{rate:g} r/s  {attachment.space.format(configuration)}  "
                f"p95 {1e3 * outcome.latency_p95:.1f} ms  {'; '.join(outcome.disturbed)}"
            )
            if not outcome.latency_p95 < OVERLOAD:
                attachment.drain(rate / 10)  # what it could not answer must not burden the next
                attachment.set_rate(rate)
        attachment.drain(rate / 10)
    return found


def predict(model: ServerModel, rate: float, points: Points) -> list[PredictedPoint]:
    """Predict what was measured, at the load that was offered.

    Args:
        model: The simulated server.
        rate: The load, requests/s.
        points: What was measured under it; disturbed windows count only where there are no others.
    """
    predictions = []
    for configuration, windows in points.items():
        seconds = median(m.seconds for m in _quiet(windows))
        simulated = [
            simulate(model, configuration, rate, seconds=seconds, seed=seed) for seed in range(SIMULATED)
        ]
        predicted = {name: median(s.latency(name) for s in simulated) for name in STATISTICS}
        predictions.append(_point(rate, configuration, predicted, windows))
    return predictions


def taught(space: KnobSpace, objective: Objective, windows: Sequence[Measurement]) -> RRL:
    """Return an agent with the neural estimator that has learned from windows, each at its own load.

    Args:
        space: The knobs.
        objective: What is minimised: the latency.
        windows: Of any configurations.
    """
    from tuner.agents.rrl import RRL

    agent = RRL(space, objective=objective, synchronous=True)
    for m in windows:
        number = space.encode(space.nearest(m.configuration))
        state = _state(m.arrival_rate, number, m)
        agent.update(state, number, objective.cost(m), state)
    return agent


def estimate(agent: RRL, objective: Objective, rate: float, points: Points) -> list[PredictedPoint]:
    """Say what the neural estimator expects of what was measured: of the p95, its median.

    Args:
        agent: What :func:`taught` returns.
        objective: What it was taught to minimise.
        rate: The load, requests/s.
        points: What was measured under it; disturbed windows count only where there are no others.
    """
    space = agent.space
    logs = agent.belief(_state(rate, space.encode(space.default)))[0]
    expected = {one: unsaturated(math.exp(logs[space.encode(one)])) * objective.slo.latency for one in points}
    return [_point(rate, one, {"p95": expected[one]}, windows) for one, windows in points.items()]


def _state(rate: float, number: int, seen: Measurement | None = None) -> State:
    figures = None if seen is None else seen.figures()
    return State(level=LoadLevels().level(rate), configuration=number, rate=rate, seen=figures)


def _point(
    rate: float, configuration: Configuration, predicted: Mapping[str, float], windows: Sequence[Measurement]
) -> PredictedPoint:
    quiet = _quiet(windows)
    return PredictedPoint(
        rate=rate,
        configuration=configuration,
        predicted=predicted,
        measured={name: median(m.latency(name) for m in quiet) for name in STATISTICS},
        repeats=[m.latency_p95 for m in quiet],
    )


def _quiet(windows: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the windows that nothing disturbed; all if there are none."""
    return [m for m in windows if not m.disturbed] or windows


def error_rows(points: Sequence[PredictedPoint]) -> list[Row]:
    """Return how far predictions are off, and how well they rank."""
    steady = [point for point in points if not point.overloaded]
    rates = sorted({point.rate for point in steady})
    rows = [_error_row(steady, name) for name in ("p95", "mean", "p50", "p99")]
    rows += [
        Row(
            id="rank correlation of p95",
            published=CORRELATION,
            measured=_correlation(points),
            note=f"Spearman's, {len(points)} points; target: at least",
        ),
        Row(
            id="rank correlation of p95 without the overloaded",
            measured=_correlation(steady),
            note=f"{len(steady)} points; {_reliability(steady)}",
        ),
    ]
    for rate in rates:
        here = [point for point in steady if point.rate == rate]
        rows.append(
            Row(
                id=f"rank correlation of p95 at {rate:.0f} requests/s",
                measured=_correlation(here),
                note=f"{len(here)} points",
            )
        )
    return [*rows, _far_off(points), _overloads(points)]


def estimated_rows(who: str, points: Sequence[PredictedPoint]) -> list[Row]:
    """Return the same for somebody who predicts the p95 alone, without what the measured values are like."""
    rows = [
        _error_row([point for point in points if not point.overloaded], "p95"),
        Row(id="rank correlation of p95", measured=_correlation(points), published=CORRELATION),
        _far_off(points),
        _overloads(points),
    ]
    return [one.model_copy(update={"id": f"{who}: {one.id}"}) for one in rows]


def _far_off(points: Sequence[PredictedPoint]) -> Row:
    """Return how many predictions are so wrong that a median hides it."""
    far = [p for p in points if not 1 / FAR <= p.predicted["p95"] / p.measured["p95"] <= FAR]
    note = f"of {len(points)}"
    for what in ("measured", "predicted") if far else ():
        values = [1e3 * getattr(point, what)["p95"] for point in far]
        note = f"{note}; {what} {min(values):.0f} to {max(values):.0f} ms"
    name = f"points whose p95 is off by more than a factor of {FAR:g}"
    return Row(id=name, measured=float(len(far)), unit="points", note=note)


def _overloads(points: Sequence[PredictedPoint]) -> Row:
    """Return how many overloads were predicted as such; there may be none to foresee."""
    overloaded = [point for point in points if point.overloaded]
    foreseen = sum(not point.predicted["p95"] < OVERLOAD for point in overloaded)
    false = sum(not p.predicted["p95"] < OVERLOAD for p in points if not p.overloaded)
    taken = f"{false} others taken for one"
    name = "overloads foreseen"
    if not overloaded:
        note = f"nothing to foresee: no p95 above {1e3 * OVERLOAD:g} ms in the median; {taken}"
        return Row(id=name, measured=None, note=note)
    return Row(
        id=name,
        published=float(len(overloaded)),
        measured=float(foreseen),
        note=f"of those that cannot serve the load; {taken}",
    )


def _error_row(points: Sequence[PredictedPoint], statistic: str) -> Row:
    errors = np.array([100.0 * abs(point.error(statistic)) for point in points])
    low, middle, high = np.quantile(errors, (0.25, 0.5, 0.75))
    bias = 100.0 * median(point.error(statistic) for point in points)
    note = f"quartiles; {bias:+.1f} % in the median with its sign"
    if statistic == "p95":
        note = f"{note}; target: at most, goal {GOAL:g} %; {_repeated(points)}"
    return Row(
        id=f"median error of {statistic}",
        published=TARGET if statistic == "p95" else None,
        measured=round(float(middle), 2),
        low=round(float(low), 2),
        high=round(float(high), 2),
        unit="%",
        note=note,
    )


def _repeated(points: Sequence[PredictedPoint]) -> str:
    """How far two windows of one configuration are apart: nothing can predict better."""
    apart = [abs(p.repeats[1] / p.repeats[0] - 1.0) for p in points if len(p.repeats) > 1]
    return f"two windows alike differ by {100.0 * median(apart):.1f} %" if apart else "measured once"


def _reliability(points: Sequence[PredictedPoint]) -> str:
    """How well two windows of the same configurations rank alike: hardly anything can rank better."""
    twice = [p.repeats for p in points if len(p.repeats) > 1]
    alike = _spearman([repeats[0] for repeats in twice], [repeats[1] for repeats in twice])
    return "measured once" if alike is None else f"of two single windows alike {alike:.2f}"


def _correlation(points: Sequence[PredictedPoint]) -> float | None:
    return _spearman([p.measured["p95"] for p in points], [p.predicted["p95"] for p in points])


def _spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The rank correlation; None where there is none."""
    from scipy.stats import spearmanr

    if len(first) < 3:
        return None
    value = float(spearmanr(first, second).statistic)
    return round(value, 3) if math.isfinite(value) else None
