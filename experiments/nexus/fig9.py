"""Nexus, Figure 9: the throughput with early and with lazy dropping at which 99 % keep the SLO of 100 ms.

The paper does not say how long it measures, nor whether its early and lazy rules share a limit on batches.
Both matter, so the gain is also measured over shorter times, without the limit, and against the lazy rule to
the letter of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tuner.cluster.goodput import goodput
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.nexus.one_accelerator import ALPHAS, OPTIMUM, SLO, scenario
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["plot", "run"]

NAME = "nexus-fig9"
PUBLISHED = {1.0: 23.0, 1.8: 5.0}
"""Gain of early over lazy dropping, %; read from the curve ("up to 25 %" in the text)."""
SECONDS, QUICK_SECONDS = 1000.0, 60.0
LENGTHS, QUICK_LENGTHS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0), (10.0, 60.0)
"""s measured."""
SHORT, REPEATS = 100.0, 5
"""Up to this length so many times the seeds: the gain of one short run is mostly luck."""
THROUGHPUT, GAIN, LENGTH = "throughput", "gain", "gain by length"


class Rule(NamedTuple):
    """A way to drop; see :func:`scenario`."""

    drop: str
    cap: str


EARLY, LAZY = Rule("early", "planned"), Rule("lazy", "planned")
COMPARED = {
    "batches up to the planned 25": (EARLY, LAZY),
    "batches as large as deadlines allow": (Rule("early", "profile"), Rule("lazy", "profile")),
    "lazy to the letter of the paper": (EARLY, Rule("missed", "profile")),
}
"""What the gain is of; the first is compared with the published one."""
DRAWN = {"early drop": EARLY, "lazy drop": LAZY, "lazy, to the letter": Rule("missed", "profile")}


class Task(NamedTuple):
    """One search."""

    alpha: float
    rule: Rule
    seconds: float
    seed: int


Rates = dict[Task, float]


def run(options: Options) -> Result:
    """Search every alpha, rule, length and seed."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    points = [(alpha, pair, seconds) for alpha in ALPHAS for pair in COMPARED.values()]
    points += [(alpha, (EARLY, LAZY), length) for alpha in PUBLISHED for length in lengths]
    tasks = list(
        dict.fromkeys(
            Task(alpha, rule, length, seed)
            for alpha, pair, length in points
            for rule in pair
            for seed in _seeds(length, options.seeds)
        )
    )
    found = dict(zip(tasks, options.run_all(measure, tasks, "alphas, rules, lengths"), strict=True))
    rows: list[Row] = []
    for words, pair in COMPARED.items():
        rows += [_row(found, alpha, words, pair, seconds, options.seeds) for alpha in ALPHAS]
    for alpha in PUBLISHED:
        rows += [
            _row(found, alpha, f"{length:g} s", (EARLY, LAZY), length, options.seeds) for length in lengths
        ]
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"slo_ms": SLO, "optimum": OPTIMUM, "measured_seconds": seconds, "bad_rate": 0.01},
        rows=rows,
        series=_series(found, seconds, lengths, options.seeds),
    )


def measure(task: Task) -> float:
    """Search one throughput, requests/s."""
    drop, cap = task.rule
    tried = scenario(task.alpha, drop, cap=cap, seconds=task.seconds, seed=task.seed)
    return goodput(tried, tolerance=0.002).rate


def _seeds(length: float, seeds: int) -> range:
    """As many as asked for, and more where a run is short."""
    return range(seeds * REPEATS if length <= SHORT else seeds)


def _rates(found: Rates, alpha: float, rule: Rule, seconds: float, seeds: int) -> list[float]:
    return [found[Task(alpha, rule, seconds, seed)] for seed in _seeds(seconds, seeds)]


def _gains(found: Rates, alpha: float, pair: tuple[Rule, Rule], seconds: float, seeds: int) -> list[float]:
    """Of each seed, %."""
    early, lazy = (_rates(found, alpha, rule, seconds, seeds) for rule in pair)
    return [100 * (one / other - 1) for one, other in zip(early, lazy, strict=True)]


def _row(  # noqa: PLR0917 - one per word of a row
    found: Rates, alpha: float, words: str, pair: tuple[Rule, Rule], seconds: float, seeds: int
) -> Row:
    first = words == next(iter(COMPARED))
    early, lazy = (median(_rates(found, alpha, rule, seconds, seeds)) for rule in pair)
    return row(
        f"alpha {alpha}: early over lazy drop" + ("" if first else f", {words}"),
        _gains(found, alpha, pair, seconds, seeds),
        unit="%",
        published=PUBLISHED.get(alpha) if first else None,
        note=f"{early:.0f} against {lazy:.0f} requests/s",
    )


def _series(found: Rates, seconds: float, lengths: Sequence[float], seeds: int) -> list[Series]:
    """The curves of the three panels."""
    series = [
        curve(
            name, ALPHAS, [_rates(found, alpha, rule, seconds, seeds) for alpha in ALPHAS], panel=THROUGHPUT
        )
        for name, rule in DRAWN.items()
    ]
    series += [
        curve(words, ALPHAS, [_gains(found, alpha, pair, seconds, seeds) for alpha in ALPHAS], panel=GAIN)
        for words, pair in COMPARED.items()
    ]
    series += [
        curve(
            f"alpha {alpha}",
            lengths,
            [_gains(found, alpha, (EARLY, LAZY), length, seeds) for length in lengths],
            panel=LENGTH,
        )
        for alpha in PUBLISHED
    ]
    return series


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the throughputs and the gain against alpha, and the gain against the time measured."""
    figure, axes = style.figure("Early against lazy dropping, Poisson arrivals, SLO 100 ms", columns=3)
    rates, gain, length = axes.flat
    style.curves(rates, result.panel(THROUGHPUT))
    rates.axhline(OPTIMUM, color=style.MUTED, ls="--", lw=1, label="optimum")
    rates.set(title="throughput", ylabel="requests/s with 99 % good", ylim=(0, OPTIMUM * 1.08))
    style.legend(rates, loc="lower right")
    style.curves(gain, result.panel(GAIN))
    style.published(gain, list(PUBLISHED), list(PUBLISHED.values()), "published, Figure 9")
    gain.set(title="gain", ylabel="early over lazy drop, %")
    gain.set_ylim(bottom=0)
    style.legend(gain, loc="lower left")
    style.curves(length, result.panel(LENGTH))
    for published in sorted(PUBLISHED.values()):
        length.axhline(published, color=style.INK, ls=":", lw=1, label="published")
    length.set(title="gain by the time measured", xlabel="seconds measured", ylabel="early over lazy drop, %")
    length.set_xscale("log")
    length.set_ylim(bottom=0)
    style.legend(length, loc="center right")
    for axis in (rates, gain):
        axis.set_xlabel("alpha, ms per request (beta falls from 25 to 5 ms)")
    return [style.save(figure, folder, NAME)]
