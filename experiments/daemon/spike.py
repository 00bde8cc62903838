"""The load triples within one window: how many windows until the SLO is kept again.

The daemon keeps simulated Triton servers in virtual time, with windows of 10 s and p95 within 30 ms. Twice in
its life the load of each triples in the middle of a window: the first time it never saw such a load, the
second time it did. Whether any configuration can meet the SLO then, long simulations of all of them say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.envs.simulator.backend import triton_space
from tuner.envs.simulator.long_window import simulate
from tuner.envs.simulator.server import MODELS
from tuner.experiments.daemon.lives import Life, keep_simulated, simulated_url
from tuner.experiments.frame.experiment import Answers, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["LoadSpike", "SpikeCase", "back"]

WINDOW, SLO, FACTOR = 10.0, 0.030, 3.0
MODEL = "mlp"
CALM, HIGH = 405.0, 400.0
"""s of calm before a spike, which comes in the middle of a window, and how long it lasts."""
RISEN = 1.3
"""A window with this many times the calm load belongs to a spike."""
WINDOWS = 140
AFTER = 20
"""Windows after a spike; a row has the share of these that kept the SLO."""
LIMIT = 3.0


class SpikeCase(NamedTuple):
    """What is kept."""

    rate: float
    """Before the spike, requests/s."""
    objective: str

    def __str__(self) -> str:
        return f"{self.rate:g} to {FACTOR * self.rate:g} requests/s, least {self.objective}"


CASES = (
    SpikeCase(100.0, "latency"),
    SpikeCase(100.0, "cpu"),
    SpikeCase(250.0, "latency"),
    SpikeCase(250.0, "cpu"),
)


@experiment(
    name="daemon-spike",
    title="The load triples within a window: windows until the SLO is kept again",
    minutes=1,
)
class LoadSpike(SequentialExperiment[list[Life]]):
    """Keeps a target for each case and seed in one daemon, and looks at what that wrote down."""

    def proceed(self) -> list[Life]:
        return keep(CASES, range(self.options.seeds))

    def rows(self, found: Answers[None, list[Life]]) -> Iterator[Row]:
        (lives,) = found[None]
        for number, case in enumerate(CASES):
            own = lives[number * self.options.seeds :][: self.options.seeds]
            yield from _rows(case, own, best(FACTOR * case.rate))

    def configuration(self) -> dict[str, Any]:
        return {"window": WINDOW, "slo": SLO, "factor": FACTOR, "windows": WINDOWS}


def keep(cases: Sequence[SpikeCase], seeds: Sequence[int]) -> list[Life]:
    """Let a daemon keep a simulated target for each case and seed, as fast as it can."""
    targets: list[dict[str, object]] = []
    rises = (CALM, 2 * CALM + HIGH)
    for case in cases:
        high = FACTOR * case.rate
        steps = [(0.0, case.rate)] + [s for t in rises for s in ((t, high), (t + HIGH, case.rate))]
        settings = {"slo": f"p95={SLO * 1e3:g}ms", "objective": case.objective, "window": f"{WINDOW:g}s"}
        targets += [
            {"url": simulated_url(MODEL, steps, seed), "seed": seed, "mode": "apply", **settings}
            for seed in seeds
        ]
    return keep_simulated(targets, WINDOWS)


def back(life: Life, calm: float) -> list[float]:
    """Return for each spike in how many windows the SLO was kept again.

    1 is the window in the middle of which the load rose, so that the SLO was not seen to break; infinite if
    the spike was over before.

    Args:
        life: What was seen.
        calm: The load before, requests/s.
    """
    high = life.rate > RISEN * calm
    found = []
    for begin in _begins(high):
        over = np.flatnonzero(~high[begin:])
        kept = np.flatnonzero(life.kept[begin : begin + over[0] if over.size else None])
        found.append(float(kept[0] + 1) if kept.size else np.inf)
    return found


def best(rate: float) -> float:
    """Return the least p95 that any configuration reaches under a load, s."""
    space = triton_space(MODELS[MODEL], None)
    return min(
        simulate(MODELS[MODEL], space.decode(int(index)), rate, seconds=30.0).latency_p95
        for index in space.distinct
    )


def _rows(case: SpikeCase, lives: Sequence[Life], least: float) -> list[Row]:
    windows = [back(life, case.rate) for life in lives]
    shares = [100 * float(np.mean(_after(life, case.rate))) for life in lives]
    note = f"target: at most; the best configuration has p95 {1e3 * least:.1f} ms"
    return [
        row(f"{case}: first spike", [w[0] for w in windows], unit="windows", published=LIMIT, note=note),
        row(f"{case}: second spike", [w[1] for w in windows], unit="windows", published=LIMIT),
        row(f"{case}: windows kept of the {AFTER} after each", shares, unit="%"),
    ]


def _after(life: Life, calm: float) -> np.ndarray:
    """Whether the windows after the spikes kept the SLO.   # (n,) bool."""
    begins = _begins(life.rate > RISEN * calm)
    return np.concatenate([life.kept[begin : begin + AFTER] for begin in begins])


def _begins(high: np.ndarray) -> np.ndarray:
    """Return the windows in which the load rose."""
    return np.asarray(np.flatnonzero(high[1:] & ~high[:-1]) + 1)
