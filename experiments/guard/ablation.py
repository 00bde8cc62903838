"""What each rule and each limit of the guard is worth: left out or changed, one at a time.

A driver with the default agent keeps simulated servers in virtual time. Their models, and the troubles they
meet, are drawn from seeds above 7000, on which nothing was tuned. Before 2026-11-27 they were those above
100, on which the rules had been chosen. Every variant of the guard has the same servers, loads, arrivals and
troubles as the guard as it is, and is compared with it life by life. A difference counts if both its
bootstrapped confidence interval and Wilcoxon's signed rank test say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.guard.life import FIGURES, WINDOW, live
from tuner.experiments.guard.load import LOADS, TROUBLED
from tuner.experiments.guard.paired import Effect, effect
from tuner.experiments.guard.variants import FULL, Variant, variants

__all__ = ["GuardAblation", "GuardTask"]

TROUBLED_LIVES = 2
"""Lives with troubles for each seed: some rules speak only there."""

Figures = dict[str, float]


class GuardTask(NamedTuple):
    """A variant under a load."""

    load: str
    variant: Variant


@experiment(
    name="guard-ablation",
    title="What each rule and limit of the guard is worth, left out or changed one at a time",
    minutes=25,
    shown=80,
)
class GuardAblation(Experiment[GuardTask, Figures]):
    """Every variant under every load in which it may differ."""

    first_seed = 7001
    windows = Scaled(180, quick=80)
    """Of a life."""

    def tasks(self) -> list[GuardTask]:
        return [
            GuardTask(load, variant)
            for load in LOADS
            for variant in variants(values=not self.options.quick)
            if load in TROUBLED or not variant.in_trouble_only
        ]

    def seeds_of(self, task: GuardTask) -> Sequence[int]:
        """Return more seeds for lives with troubles."""
        count = self.options.seeds * (TROUBLED_LIVES if task.load in TROUBLED else 1)
        return range(self.first_seed, self.first_seed + count)

    def measure(self, task: GuardTask, seed: int) -> Figures:
        return live(task.load, seed, task.variant, self.windows).figures

    def rows(self, found: Answers[GuardTask, Figures]) -> Iterator[Row]:
        lives = [life for load in LOADS for life in found[GuardTask(load, FULL)]]
        for name, unit in FIGURES.items():
            yield row(f"{FULL.name}: {name}", [one[name] for one in lives], unit=unit)
        for variant, effects in self._effects(found).items():
            yield _row(variant, effects)

    def configuration(self) -> dict[str, Any]:
        return {
            "windows": self.windows,
            "window": WINDOW,
            "loads": list(LOADS),
            "lives with troubles for each seed": TROUBLED_LIVES,
        }

    def details(self, found: Answers[GuardTask, Figures]) -> dict[str, Any]:
        """Return the medians of the guard as it is under each load, and all differences from it."""
        usual = {
            load: {name: median(one[name] for one in found[GuardTask(load, FULL)]) for name in FIGURES}
            for load in LOADS
        }
        differences = {
            variant: {name: one._asdict() | {"shows": one.shows} for name, one in effects.items()}
            for variant, effects in self._effects(found).items()
        }
        return {FULL.name: usual, "differences": differences}

    def _effects(self, found: Answers[GuardTask, Figures]) -> dict[str, dict[str, Effect]]:
        """Compare every variant with the guard as it is, over the lives that it has."""
        return {
            variant.name: {name: _effect(found, variant, name) for name in FIGURES}
            for variant in variants(values=not self.options.quick)
            if variant != FULL
        }


def _effect(found: Answers[GuardTask, Figures], variant: Variant, name: str) -> Effect:
    loads = [load for load in LOADS if GuardTask(load, variant) in found]
    usual, other = (
        [life[name] for load in loads for life in found[GuardTask(load, one)]] for one in (FULL, variant)
    )
    return effect(usual, other)


def _row(variant: str, effects: dict[str, Effect]) -> Row:
    """Return how much a variant adds to the broken windows; the note tells what else it changes."""
    first, unit = next(iter(FIGURES.items()))
    broken = effects[first]
    shown = [
        f"{name} {one.mean:+.3g} {FIGURES[name]} ({one.low:.3g} to {one.high:.3g})"
        for name, one in effects.items()
        if one.shows
    ]
    differing = max(one.differing for one in effects.values())
    note = f"{'; '.join(shown) or 'shows nothing'}; {differing} of {broken.pairs} lives differ"
    return Row(
        id=f"{variant}: more {first}",
        measured=broken.mean,
        low=broken.low,
        high=broken.high,
        unit=unit,
        note=note,
    )
