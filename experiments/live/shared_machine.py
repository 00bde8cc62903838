"""A real Triton on a machine that it shares: how much of what is measured counts, and where the loop ends.

While the control loop tunes a fresh server, a process keeps one core busy, all the time or for 30 s of every
60 s, or another Triton serves another model under a load of its own. What the loop held for its best after
each window is then measured in turns with a coarse grid, beside the same neighbour. The best of them, and all
that was held, are measured in turns again, and only that counts: the least of many noisy medians looks better
than it is. The best configuration beside a busy core also runs beside the one that comes and goes: where it
keeps the SLO, the SLO could be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from tuner.agents.rrl import RRL
from tuner.control import WATCHED
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.neighbours import busy_core, busy_triton
from tuner.experiments.live.testbed import distinct, drive, measure_beside_best, objective, repeated, triton
from tuner.experiments.live.triton_convergence import NEAR, windows_to_converge
from tuner.knobs import Configuration

__all__ = ["SharedMachine"]

RATE, WINDOW = 140.0, 5.0
"""requests/s, s"""
CHECK, ROUNDS = 4.0, 6
"""Length of a window in turns, s, and rounds that count."""
BUSY = "a busy core"
COMES = "a core busy for 30 s of every 60 s"
OTHER = "a busy Triton"
LONG_RUNS = 3
"""Most runs beside the neighbour that comes and goes, which take long."""


class TunedLife(NamedTuple):
    """What came of one run."""

    used: list[bool]
    """Whether each window was used."""
    reasons: list[str]
    """Why the others were not."""
    kept: list[bool]
    """Whether each used window kept the SLO."""
    failures: int
    held: list[Configuration]
    """What the loop held for its best after each used window."""


class Found(NamedTuple):
    """All runs, and how far from the best each was after each used window."""

    lives: dict[str, list[TunedLife]]
    p95: dict[str, dict[Configuration, list[float]]]
    """In every round that counts, s, the best first; beside neighbours that stay."""
    possible: float
    """Share of windows in which the best configuration kept the SLO beside the one that comes and goes, %."""
    crashes: int
    """How often Triton ended by itself; what it was needed for was done again."""


NEIGHBOURS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    BUSY: busy_core,
    COMES: partial(busy_core, 30.0),
    OTHER: busy_triton,
}


@experiment(
    name="shared-machine",
    title="A real Triton beside a busy neighbour: windows that count, and where the loop ends",
    minutes=50,
    live=True,
)
class SharedMachine(SequentialExperiment[Found]):
    """Tunes fresh servers beside all neighbours, then measures what was held in turns with a coarse grid."""

    windows = Scaled({BUSY: 16, COMES: 60, OTHER: 16}, quick={BUSY: 6, COMES: 6, OTHER: 6})
    """Of each run."""
    rounds = Scaled(ROUNDS, quick=1)
    crashes = 0

    def proceed(self) -> Found:
        lives: dict[str, list[TunedLife]] = {}
        for kind in NEIGHBOURS:
            for seed in self._seeds(kind):
                life = repeated(partial(self._life, kind, seed), self._again)
                lives.setdefault(kind, []).append(life)
                share = 100 * sum(life.used) / len(life.used)
                self.report(
                    f"{kind}, seed {seed}: {share:.0f} % of the windows used, {life.failures} failures"
                )
                for reason in life.reasons:
                    self.report(f"  not used: {reason}")
        p95 = {}
        for kind in (OTHER, BUSY):
            p95[kind] = repeated(partial(self._compared, kind, lives[kind]), self._again)
        best = next(iter(p95[BUSY]))
        return Found(lives, p95, repeated(partial(self._possible, best), self._again), self.crashes)

    def _seeds(self, kind: str) -> range:
        return range(min(self.options.seeds, LONG_RUNS) if kind == COMES else self.options.seeds)

    def _again(self, words: str) -> None:
        self.crashes += 1
        self.report(words)

    def rows(self, found: Answers[None, Found]) -> Iterator[Row]:
        ((lives, p95, possible, crashes),) = found[None]
        for kind, ones in lives.items():
            used = [100 * sum(one.used) / len(one.used) for one in ones]
            kept = [100 * sum(one.kept) / max(len(one.kept), 1) for one in ones]
            yield row(f"{kind}: windows used", used, unit="%", published=80.0, note="target: at least")
            note = f"the best configuration of the grid keeps it in {possible:.0f} %" if kind == COMES else ""
            yield row(f"{kind}: used windows that kept the SLO", kept, unit="%", note=note)
            if kind == COMES:
                shares = [min(100 * one / max(possible, 1.0), 100.0) for one in kept]
                yield row(
                    f"{kind}: kept, of the windows in which it could be", shares, unit="%", published=95.0
                )
            yield row(f"{kind}: failed requests", [float(one.failures) for one in ones], published=0.0)
        note = "target: at most, in the median"
        for kind, measured in p95.items():
            typical = {one: median(values) for one, values in measured.items()}
            best = next(iter(typical.values()))
            held = [[typical[one] / best for one in life.held] for life in lives[kind]]
            near = [windows_to_converge(one) for one in held]
            ends = [one[-1] for one in held]
            yield row(
                f"{kind}: windows until near-best is kept", near, unit="windows", published=12.0, note=note
            )
            yield row(f"{kind}: p95 at the end, over the best", ends, published=NEAR)
        yield row("runs repeated because Triton ended by itself", [float(crashes)])

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "window": WINDOW, "near": NEAR, "slo_ms": 30.0, "windows": self.windows}

    def details(self, found: Answers[None, Found]) -> dict[str, Any]:
        ((lives, p95, *_),) = found[None]
        return {
            "not_used": {kind: [one.reasons for one in ones] for kind, ones in lives.items()},
            "held": {kind: [[dict(c) for c in one.held] for one in ones] for kind, ones in lives.items()},
            "p95": {kind: [[dict(c), *v] for c, v in measured.items()] for kind, measured in p95.items()},
        }

    def _life(self, kind: str, seed: int) -> TunedLife:
        """Tune a fresh server for some windows beside a neighbour."""
        life = TunedLife([], [], [], 0, [])
        failures = 0
        with NEIGHBOURS[kind](), triton(RATE, seed=seed, quick=self.options.quick) as attachment:
            goal = objective(attachment)
            agent = RRL(attachment.space, objective=goal, seed=seed)
            driver = drive(attachment, goal, agent, window=WINDOW, limits=WATCHED)
            for _ in range(self.windows[kind]):
                m = driver.step().measurement
                reasons = ("no window",) if m is None else m.disturbed
                life.used.append(not reasons)
                life.reasons.extend(reasons)
                failures += m.failures if m is not None else 0
                if m is not None and not reasons:
                    life.kept.append(goal.kept(m))
                    life.held.append(driver.loop.incumbent() or attachment.space.nearest(driver.running))
            agent.close()
        return life._replace(failures=failures)

    def _compared(self, kind: str, lives: list[TunedLife]) -> dict[Configuration, list[float]]:
        """Return p95 in turns, s, of the best of a coarse grid and of all that was held."""
        with NEIGHBOURS[kind](), triton(RATE, quick=True) as coarse:
            grid = distinct(coarse)
        held = dict.fromkeys(one for life in lives for one in life.held)
        with NEIGHBOURS[kind](), triton(RATE, quick=self.options.quick) as attachment:
            return measure_beside_best(attachment, grid, list(held), seconds=CHECK, rounds=self.rounds)

    def _possible(self, best: Configuration) -> float:
        """Return the share of windows with the SLO kept, %, beside the neighbour that comes and goes."""
        with NEIGHBOURS[COMES](), triton(RATE, quick=self.options.quick) as attachment:
            attachment.backend.apply(best)
            goal = objective(attachment)
            windows = [attachment.profiler.measure(WINDOW) for _ in range(self.windows[COMES])]
        return 100 * sum(goal.kept(one) for one in windows) / len(windows)
