"""`tuner run` beside Triton's Model Analyzer on a real Triton, with models that nobody tuned on.

For each model a load is chosen that its default configuration hardly bears. Then four searches begin from
that configuration on a fresh server each, one after the other: the control loop with the default agent, which
knows nothing of the model yet, in windows as long as Model Analyzer's and in short ones, and Model Analyzer
in quick and in optuna mode. What they end with, and the default, is measured in turns with a coarse grid,
beside each other, by one load generator of ours. The time of each search begins when its server is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.agents.rrl import RRL
from tuner.errors import AdapterError, StorageError
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import GRIDS, objective, repeated
from tuner.experiments.neural.analyzer import (
    MODES,
    Effort,
    NoResult,
    SearchResult,
    analyze,
    fetch_analyzer,
)
from tuner.experiments.neural.bench import (
    CHECK,
    DEFAULT,
    MODELS,
    WINDOW,
    Bench,
    choose_bench,
    ratios_to_best,
    tune,
)
from tuner.profiler.attachment import attach
from tuner.setting import Load

__all__ = ["Contest", "ModelAnalyzer"]

OURS = {"tuner run": WINDOW, "tuner run, short windows": 1.0}
"""Ours, and the length of its windows, s."""
THEIRS = {f"Model Analyzer, {mode}": mode for mode in MODES}
SHARE_OF_TIME = 0.2
"""The share of Model Analyzer's time that `tuner run` may take."""
QUICK_GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 2),
    "max_queue_delay": (0.0, 0.005),
    "instances": (1,),
}
"""Where Model Analyzer searches in a quick run."""
WARM_UP = 2.0
"""s; the first requests of a fresh server are slow."""


class Contest(NamedTuple):
    """What the searches came to for one model."""

    bench: Bench
    found: dict[str, SearchResult]
    """By search, as far as it came to something."""
    missing: dict[str, str]
    """The reasons why others did not."""
    over_best: dict[str, float]
    """p95 of what each left, over that of the best."""
    default_over_best: float
    """That of the default, over that of the best: what there was to gain."""


@experiment(
    name="model-analyzer",
    title="A real Triton: what `tuner run` leaves behind beside Triton's Model Analyzer",
    minutes=26,
    live=True,
    repeated=False,
    shown=30,
)
class ModelAnalyzer(SequentialExperiment[list[Contest]]):
    """Tunes each model in four ways and measures in turns what they left."""

    models = Scaled(MODELS, quick=MODELS[:1])
    windows = Scaled(4, quick=2)
    """Windows of ours that count: as many as it may take to find the best cold."""
    effort = Scaled(Effort(WINDOW, 10), quick=Effort(1.0, 2, QUICK_GRIDS))
    rounds = Scaled(3, quick=1)
    check = Scaled(CHECK, quick=1.0)
    """Length of a window in turns, s."""

    def proceed(self) -> list[Contest]:
        return [self._contest(model) for model in self.models]

    def rows(self, found: Answers[None, list[Contest]]) -> Iterator[Row]:
        (contests,) = found[None]
        words = ", ".join(f"{one.bench.model} {one.default_over_best:.2f}" for one in contests)
        defaults = [one.default_over_best for one in contests]
        yield row("the default: p95 over the best", defaults, note=words)
        for name in (*OURS, *THEIRS):
            values = [one.over_best[name] for one in contests if name in one.found]
            results = [one.found[name] for one in contests if name in one.found]
            note = _note(contests, name)
            yield _row(f"{name}: p95 of what it left, over the best", values, note=note)
            yield _row(f"{name}: time", [one.seconds for one in results], unit="s")
            count = [float(one.measurements) for one in results]
            yield _row(f"{name}: measurements", count)
        for ours, theirs in product(OURS, THEIRS):
            both = [one for one in contests if {ours, theirs} <= one.found.keys()]
            yield from _beside(ours, theirs, both)

    def configuration(self) -> dict[str, Any]:
        return {
            "models": list(self.models),
            "windows": self.windows,
            "window of": OURS,
            "rounds": self.rounds,
            "analyzer": self.effort._asdict(),
        }

    def details(self, found: Answers[None, list[Contest]]) -> dict[str, Any]:
        (contests,) = found[None]
        return {
            one.bench.model: {
                **one.bench._asdict(),
                "default_over_best": one.default_over_best,
                **{
                    name: {**result._asdict(), "left": dict(result.left), "over_best": one.over_best[name]}
                    for name, result in one.found.items()
                },
                "missing": one.missing,
            }
            for one in contests
        }

    def _contest(self, model: str) -> Contest:
        bench = repeated(partial(choose_bench, model, 0, self.report), self.report)
        searches: dict[str, Callable[[], SearchResult]] = {
            name: partial(self._tune, bench, window) for name, window in OURS.items()
        }
        searches |= {name: partial(analyze, mode, bench, self.effort) for name, mode in THEIRS.items()}
        missing = dict.fromkeys(THEIRS, reason) if (reason := _why_missing()) else {}
        found: dict[str, SearchResult] = {}
        for name, search in searches.items():
            if name in missing:
                continue
            try:
                found[name] = repeated(search, self.report)
            except NoResult as error:
                missing[name] = str(error)
                self.report(f"{model}, {name}: {error}")
                continue
            one = found[name]
            words = f"{one.left}, after {one.seconds:.0f} s and {one.measurements} measurements"
            self.report(f"{model}, {name}: {words}")
        held = [DEFAULT, *(one.left for one in found.values())]
        ratios = repeated(partial(ratios_to_best, bench, held, self.rounds, self.check), self.report)
        over_best = {name: ratios[one.left] for name, one in found.items()}
        return Contest(bench, found, missing, over_best, ratios[DEFAULT])

    def _tune(self, bench: Bench, window: float) -> SearchResult:
        """Let the control loop tune on a fresh server."""
        with EmbeddedTriton(bench.model) as server:
            began = time.monotonic()
            with attach(server.target, grids=GRIDS, load=Load(rate=bench.rate)) as attachment:
                attachment.profiler.measure(WARM_UP)
                goal = objective(attachment, slo=bench.slo)
                agent = RRL(attachment.space, objective=goal)
                try:
                    tuned = tune(attachment, agent, goal, self.windows, self.report, window=window)
                finally:
                    agent.close()
                return SearchResult(tuned.left, time.monotonic() - began, tuned.windows)


def _why_missing() -> str:
    """Return why Model Analyzer cannot be run; nothing if it can. Its environment is made here, once."""
    try:
        fetch_analyzer()
    except (AdapterError, StorageError) as error:
        return str(error)
    return ""


def _note(contests: list[Contest], name: str) -> str:
    """Return how it was for each model."""
    words = [
        f"{one.bench.model} {one.over_best[name]:.2f}"
        if name in one.found
        else f"{one.bench.model} not measured, because {one.missing[name]}"
        for one in contests
    ]
    return ", ".join(words)


def _beside(ours: str, theirs: str, contests: list[Contest]) -> Iterator[Row]:
    """Compare one of ours with one of theirs, where both came to something."""
    left, rival = ([one.over_best[name] for one in contests] for name in (ours, theirs))
    for kind, of in (("in the median", median), ("at worst", max)):
        ratio = [of(left) / of(rival)] if contests else []
        yield _row(f"{ours} over {theirs}: p95 {kind}", ratio, published=1.0)
    times = [one.found[ours].seconds / one.found[theirs].seconds for one in contests]
    yield _row(f"{ours} over {theirs}: time", times, published=SHARE_OF_TIME)


def _row(
    name: str, values: list[float], *, unit: str = "", published: float | None = None, note: str = ""
) -> Row:
    """Summarise values; without any the row says that nothing was measured."""
    if not values:
        return Row(id=name, published=published, measured=None, unit=unit, note=note)
    return row(name, values, unit=unit, published=published, note=note)
