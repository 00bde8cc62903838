"""Changing load: the daemon's SLO attainment against that of the best configuration in hindsight.

Two simulated Triton servers in virtual time, so that nobody else on the machine takes part: their load goes
up and down, and the daemon begins with the default and knows nothing. Every configuration of the grid serves
the same load without ever being changed; the best of them is chosen when all is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tuner.adapters import connect
from tuner.experiments.daemon.lives import Life, keep_simulated, simulated_url
from tuner.experiments.daemon.memory import growth, sampled
from tuner.experiments.options import Options
from tuner.experiments.parallel import run_all
from tuner.experiments.result import Result, Row, row
from tuner.objective import Objective, Slo
from tuner.profiler.attachment import attach

__all__ = ["Still", "attainment", "run", "schedule"]

MODEL, WINDOW, SLO = "mlp", 10.0, 0.030
LOADS = ((100.0, 300.0), (250.0, 750.0))
"""Low and high, requests/s, of each of the two servers."""
TURN = 20
"""Windows until the load is where it was."""
WINDOWS, QUICK_WINDOWS, STILL_WINDOWS = 600, 100, 100
"""Of each target the daemon keeps, and of each configuration that stands still: whole turns all."""
MARGIN = 2.0


class Still(NamedTuple):
    """One configuration that is never changed."""

    url: str
    configuration: int
    """Its number in the space."""
    windows: int


def run(options: Options) -> Result:
    """Keep both targets, let every configuration stand still, and compare."""
    windows = QUICK_WINDOWS if options.quick else WINDOWS
    settings = f"slo: p95={SLO * 1e3:g}ms, mode: apply, window: {WINDOW:g}s"
    seeds = range(options.seeds)
    targets = [
        (simulated_url(MODEL, schedule(load, windows), seed), f"seed: {seed}, {settings}")
        for load in LOADS
        for seed in seeds
    ]
    with sampled() as memory:
        lives = keep_simulated(targets, windows)
    rows: list[Row] = []
    for number, load in enumerate(LOADS):
        rows += _compared(load, lives[number * len(seeds) : (number + 1) * len(seeds)], options)
    rows += [
        Row(id="decisions", published=1000.0, measured=float(windows * len(targets)), note="of all seeds"),
        row(
            "growth of memory after warm-up", [growth(memory)], unit="%", published=5.0, note="target: below"
        ),
    ]
    return Result(
        experiment="daemon-hindsight",
        seeds=options.seeds,
        configuration={"window": WINDOW, "slo": SLO, "windows": windows, "turn": TURN},
        rows=rows,
    )


def _compared(load: tuple[float, float], lives: Sequence[Life], options: Options) -> list[Row]:
    """Let every configuration stand still under a load, and compare the daemon's lives with them."""
    url = simulated_url(MODEL, schedule(load, STILL_WINDOWS), 0)
    space = connect(url).space
    numbers = [int(index) for index in space.distinct]
    tasks = [Still(url, index, STILL_WINDOWS) for index in numbers]
    found = dict(zip(numbers, run_all(attainment, tasks, options, "configurations"), strict=True))
    best = max(found, key=lambda index: found[index])
    text = f"{space.format(space.decode(best))}: {found[best]:.1f} %"
    least, note = (
        round(found[best] - MARGIN, 2),
        f"target: at least the best of {len(found)} ({text}) minus {MARGIN:g}",
    )
    name = "{:g} and {:g} requests/s".format(*load)
    shares = [100 * float(np.mean(life.kept)) for life in lives]
    later = [100 * float(np.mean(life.kept[TURN:])) for life in lives]
    default = found[int(space.canonical[space.encode(space.default)])]
    return [
        row(f"{name}: SLO attainment", shares, unit="%", published=least, note=note),
        row(f"{name}: after the first turn of the load", later, unit="%"),
        row(f"{name}: that of the default", [default], unit="%"),
    ]


def schedule(load: tuple[float, float], windows: int) -> list[tuple[float, float]]:
    """Return the steps of a load that is low and high for half a turn each."""
    half = TURN // 2
    return [
        (number * half * WINDOW, load[number % 2]) for number in range(2 * -(-2 * windows // TURN))
    ]  # changes take time, too


def attainment(task: Still) -> float:
    """Return the share of the windows in which a configuration that is never changed keeps the SLO, %."""
    with attach(task.url) as attachment:
        space = attachment.space
        attachment.backend.apply(space.decode(task.configuration))
        objective = Objective(slo=Slo(statistic="p95", latency=SLO), goal="latency", cores=1.0)
        kept = [objective.kept(attachment.profiler.measure(WINDOW)) for _ in range(task.windows)]
    return 100 * float(np.mean(kept))
