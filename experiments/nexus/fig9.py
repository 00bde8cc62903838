"""Nexus, Figure 9: the throughput with early and with lazy dropping at which 99 % keep the SLO of 100 ms.

The paper does not say how long it measures, nor whether its early and lazy rules share a limit on batches.
Both matter, so the gain is also measured over shorter times, without the limit, and against the lazy rule to
the letter of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from tuner.cluster.goodput import goodput
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.nexus.one_accelerator import ALPHAS, OPTIMUM, SLO, scenario
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["EarlyDropping", "RuleThroughput"]

PUBLISHED = {1.0: 23.0, 1.8: 5.0}
"""Gain of early over lazy dropping, %; read from the curve ("up to 25 %" in the text)."""
SHORT, REPEATS = 100.0, 5
"""Runs of up to this length, s, have this many times the seeds: the gain of one short run is mostly luck."""
THROUGHPUT, GAIN, LENGTH = "throughput", "gain", "gain by length"


class DropRule(NamedTuple):
    """A way to drop; see :func:`scenario`."""

    drop: str
    cap: str


Pair = tuple[DropRule, DropRule]
"""An early rule and the lazy one that it is compared with."""
EARLY, LAZY = DropRule("early", "planned"), DropRule("lazy", "planned")
COMPARED: dict[str, Pair] = {
    "batches up to the planned 25": (EARLY, LAZY),
    "batches as large as deadlines allow": (DropRule("early", "profile"), DropRule("lazy", "profile")),
    "lazy to the letter of the paper": (EARLY, DropRule("missed", "profile")),
}
"""What the gain is of; the first is compared with the published one."""
DRAWN = {"early drop": EARLY, "lazy drop": LAZY, "lazy, to the letter": DropRule("missed", "profile")}


class RuleThroughput(NamedTuple):
    """One search of a throughput."""

    alpha: float
    rule: DropRule
    seconds: float


Rates = Answers[RuleThroughput, float]


@experiment(
    name="nexus-fig9",
    title="Throughput with early and with lazy dropping",
    paper="Nexus",
    minutes=1,
)
class EarlyDropping(Experiment[RuleThroughput, float]):
    """The throughput of every alpha, rule and length, requests/s."""

    seconds = Scaled(1000.0, quick=60.0)
    lengths = Scaled((10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0), quick=(10.0, 60.0))
    """Measured, s."""

    def tasks(self) -> Iterator[RuleThroughput]:
        for alpha in ALPHAS:
            for pair in COMPARED.values():
                yield from (RuleThroughput(alpha, rule, self.seconds) for rule in pair)
        for alpha in PUBLISHED:
            for length in self.lengths:
                yield from (RuleThroughput(alpha, rule, length) for rule in (EARLY, LAZY))

    def seeds_of(self, task: RuleThroughput) -> range:
        return range(self.options.seeds * (REPEATS if task.seconds <= SHORT else 1))

    def measure(self, task: RuleThroughput, seed: int) -> float:
        drop, cap = task.rule
        tried = scenario(task.alpha, drop, cap=cap, seconds=task.seconds, seed=seed)
        return goodput(tried, tolerance=0.002).rate

    def rows(self, found: Rates) -> Iterator[Row]:
        for place, (words, pair) in enumerate(COMPARED.items()):
            for alpha in ALPHAS:
                published = PUBLISHED.get(alpha) if place == 0 else None
                more = f", {words}" if place else ""
                yield _gain_row(found, alpha, pair, self.seconds, more).model_copy(
                    update={"published": published}
                )
        for alpha in PUBLISHED:
            for length in self.lengths:
                yield _gain_row(found, alpha, (EARLY, LAZY), length, f", {length:g} s")

    def series(self, found: Rates) -> Iterator[Series]:
        """The curves of the three panels."""
        for name, rule in DRAWN.items():
            rates = [found[RuleThroughput(alpha, rule, self.seconds)] for alpha in ALPHAS]
            yield curve(name, ALPHAS, rates, panel=THROUGHPUT)
        for words, pair in COMPARED.items():
            gains = [_gains(found, alpha, pair, self.seconds) for alpha in ALPHAS]
            yield curve(words, ALPHAS, gains, panel=GAIN)
        for alpha in PUBLISHED:
            gains = [_gains(found, alpha, (EARLY, LAZY), length) for length in self.lengths]
            yield curve(f"alpha {alpha}", self.lengths, gains, panel=LENGTH)

    def configuration(self) -> dict[str, Any]:
        return {"slo_ms": SLO, "optimum": OPTIMUM, "measured_seconds": self.seconds, "bad_rate": 0.01}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
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
        length.set(title="gain by the time measured", xlabel="seconds measured")
        length.set(ylabel="early over lazy drop, %", xscale="log")
        length.set_ylim(bottom=0)
        style.legend(length, loc="center right")
        for axis in (rates, gain):
            axis.set_xlabel("alpha, ms per request (beta falls from 25 to 5 ms)")
        return [style.Drawing(figure)]


def _gain_row(found: Rates, alpha: float, pair: Pair, seconds: float, more: str) -> Row:
    early, lazy = (median(found[RuleThroughput(alpha, rule, seconds)]) for rule in pair)
    return row(
        f"alpha {alpha}: early over lazy drop{more}",
        _gains(found, alpha, pair, seconds),
        unit="%",
        note=f"{early:.0f} against {lazy:.0f} requests/s",
    )


def _gains(found: Rates, alpha: float, pair: Pair, seconds: float) -> list[float]:
    """Of each seed, %."""
    early, lazy = (found[RuleThroughput(alpha, rule, seconds)] for rule in pair)
    return [100 * (one / other - 1) for one, other in zip(early, lazy, strict=True)]
