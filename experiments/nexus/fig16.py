"""Nexus, Figure 16: squishy packing against a batch-oblivious plan, 16 sessions on 8 accelerators.

Five mixes: Inception or ResNet with SLOs from 50 to 200 ms, Inception or ResNet with rates by Zipf's law, and
eight architectures with two SLOs each. The goodput of a plan is found by simulation: all plans use all
accelerators, and are carried out by the same backends and frontends, under Poisson arrivals. Squishy packing
is that of the paper (Algorithm 1), and the plan that simulations with another seed chose among its own and
balanced ones. How plans are balanced was worked out on other seeds and on random mixes, which are the last
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster import Scenario
from tuner.cluster.goodput import goodput
from tuner.cluster.placement_trial import choose_placement
from tuner.cluster.scenario import Session
from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.nexus.bound import mix as random_mix
from tuner.experiments.zoo import GTX_1080TI, TABLE_4, Model, model
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["MIXES", "SquishyMix", "sessions_of"]

SESSIONS, ACCELERATORS = 16, 8
SLOS = (50.0, 200.0)
"""ms, from and to."""
ZIPF = 0.9
MIDDLE = 100.0
"""ms, the SLO where rates differ."""
BOTH = (50.0, 100.0)
"""ms, of each of eight architectures."""
SMALL = 4.0
"""Executions of one request that the shortest SLO has time for: such models can share an accelerator."""
TOLERANCE = 0.01
ONE_PLAN = 86_400.0
"""s, longer than any simulation."""
LEAST = 11.0
"""% that the paper gains at least; 64 at most."""
MIXES = {
    "Inception, SLOs": "mixed SLOs",
    "ResNet, SLOs": "mixed SLOs",
    "Inception, rates": "mixed rates",
    "ResNet, rates": "mixed rates",
    "architectures": "models and SLOs",
}
"""Name -> what differs."""
RANDOM = "random mix"
OTHER_MIXES = 2000
"""Of the seeds of random mixes."""


class Rates(NamedTuple):
    """Goodput by each plan, requests/s."""

    packed: float
    """Of Algorithm 1."""
    chosen: float
    """Of the plan that was chosen by simulation."""
    oblivious: float

    @property
    def gain(self) -> float:
        """Of the chosen plan over the oblivious one, %."""
        return _more(self.chosen, self.oblivious)

    @property
    def packed_gain(self) -> float:
        """Of Algorithm 1 over the oblivious plan, %."""
        return _more(self.packed, self.oblivious)

    @property
    def over_packed(self) -> float:
        """Of the chosen plan over Algorithm 1, %."""
        return _more(self.chosen, self.packed)


def _more(rate: float, other: float) -> float:
    return 100 * (rate / other - 1) if other else float("inf")


@experiment(
    name="nexus-fig16", title="Squishy packing against a batch-oblivious plan", paper="Nexus", minutes=5
)
class SquishyMix(Experiment[str, Rates]):
    """Every mix under both planners."""

    seconds = Scaled(60.0, quick=10.0)
    random_mixes = Scaled(8, quick=1)

    def tasks(self) -> list[str]:
        return [*MIXES, *(f"{RANDOM} {number}" for number in range(self.random_mixes))]

    def measure(self, task: str, seed: int) -> Rates:
        given: dict[str, Any] = {
            "accelerators": ACCELERATORS,
            "seconds": self.seconds,
            "warmup_seconds": 2.0,
            "seed": seed,
            "sessions": sessions_of(task, seed),
        }
        squishy = choose_placement(Scenario(policy="nexus", **given))
        if task.startswith(RANDOM):
            return Rates(squishy.packed, squishy.rate, 0.0)
        once = Scenario(planner="oblivious", epoch_s=ONE_PLAN, **given)
        oblivious = goodput(once, tolerance=TOLERANCE)
        return Rates(squishy.packed, squishy.rate, oblivious.rate)

    def rows(self, found: Answers[str, Rates]) -> Iterator[Row]:
        for mix in MIXES:
            answers = found[mix]
            packed, chosen, oblivious = np.median(answers, axis=0)
            for name, gains, rate in (
                ("more goodput", [one.gain for one in answers], chosen),
                ("more goodput, Algorithm 1", [one.packed_gain for one in answers], packed),
            ):
                note = f"target: at least (64 at most); {rate:.0f} against {oblivious:.0f} requests/s"
                yield row(f"{mix}: {name}", gains, unit="%", published=LEAST, note=note)
        for mix, answers in found.items():
            over = [one.over_packed for one in answers]
            yield row(f"{mix}: the chosen plan over Algorithm 1", over, unit="%")

    def series(self, found: Answers[str, Rates]) -> Iterator[Series]:
        places = list(range(len(MIXES)))
        yield curve("chosen by simulation", places, [[one.gain for one in found[mix]] for mix in MIXES])
        yield curve("Algorithm 1", places, [[one.packed_gain for one in found[mix]] for mix in MIXES])

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the gain of each mix."""
        title = "Squishy packing over batch-oblivious plans"
        drawing, axis = curves_drawn(result, title, ylabel="more goodput, %", xticks=range(len(MIXES)))
        axis.axhline(LEAST, color="0.7", linewidth=1)
        axis.set_xticklabels(MIXES, rotation=15, ha="right", fontsize=8)
        return [drawing]


def sessions_of(mix: str, seed: int) -> list[Session]:
    """Return the sessions of a mix in random order; their rates matter by their proportions only."""
    sessions = _random(int(mix.removeprefix(RANDOM))) if mix.startswith(RANDOM) else _sessions(mix)
    order = np.random.default_rng(seed).permutation(len(sessions))
    return [sessions[place] for place in order]


def _random(number: int) -> list[Session]:
    """Return a random mix that needs about half of the accelerators at least."""
    rng = np.random.default_rng((OTHER_MIXES, number))
    return [
        Session(
            name=load.name,
            profile_ms=tuple((1e3 * load.latency[1:]).tolist()),
            slo_ms=1e3 * load.budget,
            rate=load.rate,
        )
        for load in random_mix(rng, ACCELERATORS // 2)
        if load.fits
    ]


def _sessions(mix: str) -> list[Session]:
    if mix == "architectures":
        known = [one for one in GTX_1080TI if SMALL * (one.alpha_ms + one.beta_ms) <= BOTH[0]]
        chosen = known[:: max(len(known) // 8, 1)][:8]
        pairs = [(one, slo) for one in chosen for slo in BOTH]
        return [
            one.session(slo, rate=1000.0 / (one.alpha_ms + one.beta_ms)).model_copy(
                update={"name": f"{one.name}-{slo:g}"}
            )
            for one, slo in pairs
        ]
    one: Model = TABLE_4[0].model if mix.startswith("ResNet") else model("InceptionV3", GTX_1080TI)
    slos = np.linspace(*SLOS, SESSIONS) if mix.endswith("SLOs") else np.full(SESSIONS, MIDDLE)
    places = np.arange(1, SESSIONS + 1)
    rates = 100.0 / places**ZIPF if mix.endswith("rates") else np.full(SESSIONS, 30.0)
    return [
        one.session(float(slo), rate=float(rate)).model_copy(update={"name": f"{one.name}-{number}"})
        for number, (slo, rate) in enumerate(zip(slos, rates, strict=True))
    ]
