"""A real Triton with a model that nobody tuned on, and a load that its default configuration hardly bears."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tuner.agents.rrl import RRL
from tuner.control import WATCHED, ControlLoop, Driver, Watched
from tuner.experiments.live.testbed import distinct, measure_beside_best, triton
from tuner.knobs import Configuration
from tuner.objective import Objective
from tuner.profiler.attachment import Attachment

__all__ = ["DEFAULT", "MODELS", "NEAR", "WINDOW", "Bench", "Tuned", "choose_bench", "ratios_to_best", "tune"]

MODELS = ("small", "cnn", "wide")
"""Models of unlike l(b); the demo's is not among them."""
DEFAULT = Configuration(max_batch_size=1, max_queue_delay=0.0, instances=1)
"""What each has at first: without a batcher every request is executed alone."""
PROBES = 10.0
"""Rate under which the time of an execution is measured first, requests/s."""
SHARE, MOST = 0.85, 400.0
"""The load beside what one instance bears without batching, and at most, requests/s."""
SLACK, LEAST_SLO = 4.0, 0.010
"""The SLO beside the time of an execution, and at least, s."""
WINDOW = 5.0
CHECK = 4.0
"""Length of a window in turns, s."""
NEAR = 1.10
"""What counts as found: p95 over the best."""


class Bench(NamedTuple):
    """What a model is asked to do."""

    model: str
    rate: float
    """requests/s"""
    slo: float
    """s, of the p95"""


class Tuned(NamedTuple):
    """What the control loop did in the windows that count."""

    held: list[Configuration]
    """What it held for the best after each."""
    left: Configuration
    """What it left the server with."""
    windows: int
    """All that were measured, with those that do not count."""
    failures: int


def choose_bench(model: str, seed: int, report: Callable[[str], None]) -> Bench:
    """Measure how long a single request takes, and choose load and SLO by it."""
    with triton(PROBES, seed=seed, model=model) as attachment:
        seconds = attachment.profiler.measure(WINDOW).compute_mean
    bench = Bench(model, min(SHARE / seconds, MOST), max(SLACK * seconds, LEAST_SLO))
    report(f"{model}: {1e3 * seconds:.1f} ms, {bench.rate:.0f} r/s, p95 in {1e3 * bench.slo:.0f} ms")
    return bench


def tune(
    attachment: Attachment,
    agent: RRL,
    goal: Objective,
    windows: int,
    report: Callable[[str], None],
    *,
    window: float = WINDOW,
) -> Tuned:
    """Let the control loop tune for some windows that count; the loop lengthens those with few requests."""
    loop = ControlLoop(attachment.space, goal, agent, limits=WATCHED)
    driver = Driver(Watched(attachment.backend, attachment.profiler, attachment.clock), loop, window=window)
    held: list[Configuration] = []
    failures = measured = 0
    for _ in range(2 * windows):
        m = driver.step().measurement
        if m is None:
            continue
        measured += 1
        failures += m.failures
        if m.disturbed:
            continue
        held.append(loop.incumbent() or attachment.space.nearest(driver.running))
        ran, best = map(attachment.space.format, (m.configuration, held[-1]))
        report(
            f"{len(held)}/{windows}  p95 {1e3 * m.latency_p95:.1f} ms with {ran}; held for the best: {best}"
        )
        if len(held) == windows:
            break
    left = attachment.space.nearest(driver.finish())
    return Tuned(held or [left], left, measured, failures)


def ratios_to_best(
    bench: Bench, held: Sequence[Configuration], rounds: int, seconds: float = CHECK
) -> dict[Configuration, float]:
    """Return p95 over that of the best of a coarse grid and of all that was held, round by round."""
    with triton(bench.rate, quick=True, model=bench.model) as coarse:
        grid = distinct(coarse)
    with triton(bench.rate, model=bench.model) as attachment:
        found = measure_beside_best(attachment, grid, held, seconds=seconds, rounds=rounds)
    best = next(iter(found.values()))
    return {one: float(np.median(np.divide(values, best))) for one, values in found.items()}
