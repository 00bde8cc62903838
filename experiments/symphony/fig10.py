"""Symphony, Figure 10: overload and idle accelerators, 10 ResNet50 on 24 accelerators, SLO 100 ms.

With a flat top, a load ``o`` above the peak ``p`` is bad only in the share ``(o - p) / o`` that does not fit,
and one below leaves the accelerators idle for the share ``(p - o) / p`` of the time (section 4.4).
The peak is each system's own goodput.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tuner.cluster import Scenario, simulate
from tuner.cluster.goodput import goodput
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.two_models import SYSTEMS
from tuner.experiments.zoo import NETWORK, TABLE_4
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["FlatTop", "LoadCurve", "ideal_bad", "ideal_goodput", "ideal_idle", "off_the_top"]

COMPARED = ("symphony", "nexus", "clockwork", "clockwork, nothing ahead", "eager")
SESSIONS, ACCELERATORS, SLO = 10, 24, 100.0
GOODPUT, BAD, IDLE = "goodput", "bad rate", "idle time"


class LoadCurve(NamedTuple):
    """The peak of a system, and what happens at each load."""

    peak: float  # requests/s
    good: list[float]  # good answers per second, in peaks
    bad: list[float]  # share of the requests
    idle: list[float]  # share of the time of the accelerators


@experiment(
    name="symphony-fig10",
    title="Overload and idle accelerators: how flat the top is",
    paper="Symphony",
    minutes=1,
)
class FlatTop(Experiment[str, LoadCurve]):
    """Searches the peak of each system and simulates loads below and above it."""

    loads = Scaled(
        (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0),
        quick=(0.2, 0.6, 1.0, 1.4, 2.0),
    )
    """Offered, in peaks."""
    seconds = Scaled(10.0, quick=2.0)

    def tasks(self) -> Sequence[str]:
        return COMPARED

    def measure(self, system: str, seed: int) -> LoadCurve:
        scenario = Scenario(
            policy=SYSTEMS[system].policy,
            options=SYSTEMS[system].options,
            accelerators=ACCELERATORS,
            sessions=(TABLE_4[0].model.session(SLO, copies=SESSIONS),),
            rate=20_000.0,
            network=NETWORK,
            seconds=self.seconds,
            seed=seed,
        )
        found = goodput(scenario, tolerance=0.005)
        outcomes = [simulate(scenario.scaled(found.multiplier * load)) for load in self.loads]
        return LoadCurve(
            peak=found.rate,
            good=[outcome.good_rate / found.rate for outcome in outcomes],
            bad=[outcome.bad_rate for outcome in outcomes],
            idle=[1 - outcome.mean_utilisation for outcome in outcomes],
        )

    def rows(self, found: Answers[str, LoadCurve]) -> Iterator[Row]:
        for system, curves in found.items():
            far = [off_the_top(self.loads, each) for each in curves]
            ours = system == "symphony"
            yield row(f"{system}: peak goodput", [each.peak for each in curves], unit="requests/s")
            yield row(
                f"{system}: bad rate above the peak, farthest from (o-p)/o",
                [bad for bad, _ in far],
                note="expected: at most 0.05" if ours else "",
            )
            yield row(
                f"{system}: idle time below the peak, farthest from (p-o)/p",
                [idle for _, idle in far],
                note="expected: at most 0.1" if ours else "",
            )
            most = [each.good[-1] for each in curves]
            yield row(f"{system}: goodput at {self.loads[-1]:g} peaks", most, unit="peaks")

    def series(self, found: Answers[str, LoadCurve]) -> Iterator[Series]:
        for system, curves in found.items():
            for panel, values in (
                (GOODPUT, [each.good for each in curves]),
                (BAD, [each.bad for each in curves]),
                (IDLE, [each.idle for each in curves]),
            ):
                yield curve(system, self.loads, list(zip(*values, strict=True)), panel=panel)

    def configuration(self) -> dict[str, Any]:
        return {
            "sessions": SESSIONS,
            "accelerators": ACCELERATORS,
            "slo_ms": SLO,
            "measured_seconds": self.seconds,
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw goodput, bad rate and idle time against the load."""
        title = f"Load from light to twice the peak: {SESSIONS} ResNet50, {ACCELERATORS} accelerators"
        figure, axes = style.figure(title, columns=3)
        panels = (
            (GOODPUT, "good answers, peaks", ideal_goodput),
            (BAD, "late or dropped, share of the requests", ideal_bad),
            (IDLE, "idle, share of the time", ideal_idle),
        )
        for axis, (panel, label, ideal) in zip(axes.flat, panels, strict=True):
            series = result.panel(panel)
            style.curves(axis, [one for one in series if "," not in one.name])
            for one in [one for one in series if "," in one.name]:
                color, marker = style.look(one.name)
                axis.plot(
                    one.x, one.y, color=color, marker=marker, mfc="white", ms=4, ls="--", label=one.name
                )
            grid = [0.2 + 0.01 * step for step in range(181)]
            axis.plot(grid, [ideal(load) for load in grid], color=style.INK, ls=":", lw=1.6, label="ideal")
            axis.set(title=panel, xlabel="offered load, in peaks of the system", ylabel=label)
            axis.set_ylim(bottom=0)
        style.legend(axes.flat[-1], loc="upper right")
        return [style.Drawing(figure)]


def ideal_goodput(load: float) -> float:
    """Return how much of a load, in peaks, fits."""
    return min(load, 1.0)


def ideal_bad(load: float) -> float:
    """Return the share of a load, in peaks, that does not fit."""
    return max(0.0, 1 - 1 / load)


def ideal_idle(load: float) -> float:
    """Return the share of the time that a load, in peaks, leaves idle."""
    return max(0.0, 1 - load)


def off_the_top(loads: Sequence[float], found: LoadCurve) -> tuple[float, float]:
    """Return how far the bad rate above the peak and the idle time below it are from the ideal, at most."""
    bad = [abs(value - ideal_bad(load)) for load, value in zip(loads, found.bad, strict=True) if load > 1]
    idle = [abs(value - ideal_idle(load)) for load, value in zip(loads, found.idle, strict=True) if load < 1]
    return max(bad), max(idle)
