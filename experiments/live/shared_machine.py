"""A real Triton on a machine that it shares: how much of what is measured counts, and where the loop ends.

A process keeps one core busy, all the time or for 30 s of every 60 s, while the control loop tunes a fresh
server. What the loop held for its best after each window is then measured in turns with a coarse grid, beside
the same neighbour.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

from tuner.agents.rrl import RRL
from tuner.control import WATCHED, ControlLoop, Driver, Watched
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import distinct, measure_in_turns, objective, triton
from tuner.experiments.live.triton_convergence import NEAR, windows_to_converge
from tuner.knobs import Configuration

__all__ = ["SharedMachine", "neighbour"]

RATE, WINDOW = 140.0, 5.0
"""requests/s, s"""
CHECK, ROUNDS = 4.0, 3
"""Length of a window in turns, s, and rounds."""
BUSY = "a busy core"
COMES = "a core busy for 30 s of every 60 s"
PERIODS = {BUSY: 0.0, COMES: 30.0}
"""How long the neighbour is busy, and then idle, s; 0 if it never rests."""
LOOP = """
import sys, time
period, begun = float(sys.argv[1]), time.monotonic()
while True:
    if period and (time.monotonic() - begun) // period % 2:
        time.sleep(0.01)
"""


class TunedLife(NamedTuple):
    """What came of one run."""

    used: list[bool]
    """Whether each window was used."""
    kept: list[bool]
    """Whether each used window kept the SLO."""
    failures: int
    held: list[Configuration]
    """What the loop held for its best after each used window."""


class Found(NamedTuple):
    """All runs, and how far from the best each was after each used window."""

    lives: dict[str, list[TunedLife]]
    ratios: list[list[float]]
    """p95 over the best's; of the runs beside a busy core."""


@contextmanager
def neighbour(period: float = 0.0) -> Iterator[None]:
    """Keep one core busy from another process: for ``period`` seconds, then not for as long; 0: always."""
    process = subprocess.Popen([sys.executable, "-c", LOOP, f"{period:g}"])
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


@experiment(
    name="shared-machine",
    title="A real Triton beside a busy neighbour: windows that count, and where the loop ends",
    minutes=17,
    live=True,
)
class SharedMachine(SequentialExperiment[Found]):
    """Tunes fresh servers beside both neighbours, then measures what was held in turns with a coarse grid."""

    windows = Scaled({BUSY: 16, COMES: 24}, quick={BUSY: 6, COMES: 6})
    """Of each run."""
    rounds = Scaled(ROUNDS, quick=1)

    def proceed(self) -> Found:
        lives: dict[str, list[TunedLife]] = {}
        for kind, period in PERIODS.items():
            for seed in range(self.options.seeds):
                life = self._life(seed, period, self.windows[kind])
                lives.setdefault(kind, []).append(life)
                share = 100 * sum(life.used) / len(life.used)
                self.report(
                    f"{kind}, seed {seed}: {share:.0f} % of the windows used, {life.failures} failures"
                )
        return Found(lives, self._ratios(lives[BUSY]))

    def rows(self, found: Answers[None, Found]) -> Iterator[Row]:
        ((lives, ratios),) = found[None]
        for kind, ones in lives.items():
            used = [100 * sum(one.used) / len(one.used) for one in ones]
            kept = [100 * sum(one.kept) / max(len(one.kept), 1) for one in ones]
            yield row(f"{kind}: windows used", used, unit="%", published=80.0, note="target: at least")
            asked = 95.0 if kind == COMES else None
            yield row(f"{kind}: used windows that kept the SLO", kept, unit="%", published=asked)
            yield row(f"{kind}: failed requests", [float(one.failures) for one in ones], published=0.0)
        near = [windows_to_converge(one) for one in ratios]
        note = "target: at most, in the median"
        yield row(f"{BUSY}: windows until near-best is kept", near, unit="windows", published=12.0, note=note)
        yield row(f"{BUSY}: p95 at the end, over the best", [one[-1] for one in ratios], published=NEAR)

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "window": WINDOW, "near": NEAR, "slo_ms": 30.0, "windows": self.windows}

    def _life(self, seed: int, period: float, windows: int) -> TunedLife:
        """Tune a fresh server for some windows beside a neighbour."""
        life = TunedLife([], [], 0, [])
        failures = 0
        with neighbour(period), triton(RATE, seed=seed, quick=self.options.quick) as attachment:
            goal = objective(attachment)
            agent = RRL(attachment.space, objective=goal, seed=seed)
            loop = ControlLoop(attachment.space, goal, agent, limits=WATCHED)
            driver = Driver(
                Watched(attachment.backend, attachment.profiler, attachment.clock), loop, window=WINDOW
            )
            for _ in range(windows):
                m = driver.step().measurement
                life.used.append(m is not None and not m.disturbed)
                failures += m.failures if m is not None else 0
                if m is not None and not m.disturbed:
                    life.kept.append(goal.kept(m))
                    life.held.append(loop.incumbent() or attachment.space.nearest(driver.running))
            agent.close()
        return life._replace(failures=failures)

    def _ratios(self, lives: list[TunedLife]) -> list[list[float]]:
        """Return p95 over that of the best of a coarse grid and of all that was held, beside a busy core."""
        with neighbour(), triton(RATE, quick=True) as coarse:
            grid = distinct(coarse)
        with neighbour(), triton(RATE, quick=self.options.quick) as attachment:
            wanted = list(dict.fromkeys([*grid, *(one for life in lives for one in life.held)]))
            found = measure_in_turns(attachment, wanted, seconds=CHECK, rounds=self.rounds)
        p95 = {one: median(values) for one, values in found.items()}
        best = min(p95.values())
        return [[p95[one] / best for one in life.held] for life in lives]
