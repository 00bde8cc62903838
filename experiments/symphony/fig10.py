"""Symphony, Figure 10: overload and idle accelerators, 10 ResNet50 on 24 accelerators, SLO 100 ms.

With a flat top, a load ``o`` above the peak ``p`` is bad only in the share ``(o - p) / o`` that does not fit,
and one below leaves the accelerators idle for the share ``(p - o) / p`` of the time (section 4.4).
The peak is each system's own goodput.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tuner.cluster import Scenario, Session, simulate
from tuner.cluster.goodput import goodput
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.two_models import ALLOWANCES, SYSTEMS
from tuner.experiments.zoo import TABLE_4
from tuner.report import style
from tuner.report.series import curve

__all__ = ["off_the_top", "plot", "run"]

NAME = "symphony-fig10"
COMPARED = ("symphony", "nexus", "clockwork", "clockwork, nothing ahead", "eager")
LOADS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0)
"""Offered, in peaks."""
QUICK_LOADS = (0.2, 0.6, 1.0, 1.4, 2.0)
SESSIONS, ACCELERATORS, SLO = 10, 24, 100.0
SECONDS, QUICK_SECONDS = 10.0, 2.0
GOODPUT, BAD, IDLE = "goodput", "bad rate", "idle time"


class Task(NamedTuple):
    """One system with one seed."""

    system: str
    loads: tuple[float, ...]
    seconds: float
    seed: int


class Found(NamedTuple):
    """The peak, and what happens at each load."""

    peak: float  # requests/s
    good: list[float]  # good answers per second, in peaks
    bad: list[float]  # share of the requests
    idle: list[float]  # share of the time of the accelerators


def run(options: Options) -> Result:
    """Search each peak and simulate loads below and above it."""
    loads = QUICK_LOADS if options.quick else LOADS
    seconds = QUICK_SECONDS if options.quick else SECONDS
    tasks = [Task(system, loads, seconds, seed) for system in COMPARED for seed in range(options.seeds)]
    found = dict(zip(tasks, options.run_all(measure, tasks, "systems and seeds"), strict=True))
    rows: list[Row] = []
    series = []
    for system in COMPARED:
        seeds = [found[task] for task in tasks if task.system == system]
        rows += _rows(system, loads, seeds)
        for panel, values in (
            (GOODPUT, [each.good for each in seeds]),
            (BAD, [each.bad for each in seeds]),
            (IDLE, [each.idle for each in seeds]),
        ):
            series.append(curve(system, loads, list(zip(*values, strict=True)), panel=panel))
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={
            "sessions": SESSIONS,
            "accelerators": ACCELERATORS,
            "slo_ms": SLO,
            "measured_seconds": seconds,
        },
        rows=rows,
        series=series,
    )


def measure(task: Task) -> Found:
    """Search one peak and simulate all loads."""
    model = TABLE_4[0].model
    session = Session(
        name=model.name, alpha_ms=model.alpha_ms, beta_ms=model.beta_ms, slo_ms=SLO, copies=SESSIONS
    )
    scenario = Scenario(
        policy=SYSTEMS[task.system].policy,
        options=SYSTEMS[task.system].options,
        accelerators=ACCELERATORS,
        sessions=(session,),
        rate=20_000.0,
        network=ALLOWANCES,
        seconds=task.seconds,
        seed=task.seed,
    )
    found = goodput(scenario, tolerance=0.005)
    outcomes = [simulate(scenario.scaled(found.multiplier * load)) for load in task.loads]
    return Found(
        peak=found.rate,
        good=[outcome.good_rate / found.rate for outcome in outcomes],
        bad=[outcome.bad_rate for outcome in outcomes],
        idle=[1 - outcome.mean_utilisation for outcome in outcomes],
    )


def ideal_goodput(load: float) -> float:
    """Return how much of a load, in peaks, fits."""
    return min(load, 1.0)


def ideal_bad(load: float) -> float:
    """Return the share of a load, in peaks, that does not fit."""
    return max(0.0, 1 - 1 / load)


def ideal_idle(load: float) -> float:
    """Return the share of the time that a load, in peaks, leaves idle."""
    return max(0.0, 1 - load)


def off_the_top(loads: Sequence[float], found: Found) -> tuple[float, float]:
    """Return how far the bad rate above the peak and the idle time below it are from the ideal, at most."""
    bad = [abs(value - ideal_bad(load)) for load, value in zip(loads, found.bad, strict=True) if load > 1]
    idle = [abs(value - ideal_idle(load)) for load, value in zip(loads, found.idle, strict=True) if load < 1]
    return max(bad), max(idle)


def _rows(system: str, loads: Sequence[float], seeds: list[Found]) -> list[Row]:
    far = [off_the_top(loads, each) for each in seeds]
    ours = system == "symphony"
    return [
        row(f"{system}: peak goodput", [each.peak for each in seeds], unit="requests/s"),
        row(
            f"{system}: bad rate above the peak, farthest from (o-p)/o",
            [bad for bad, _ in far],
            note="expected: at most 0.05" if ours else "",
        ),
        row(
            f"{system}: idle time below the peak, farthest from (p-o)/p",
            [idle for _, idle in far],
            note="expected: at most 0.1" if ours else "",
        ),
        row(f"{system}: goodput at {loads[-1]:g} peaks", [each.good[-1] for each in seeds], unit="peaks"),
    ]


def plot(result: Result, folder: Path) -> list[Path]:
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
            look = style.look(one.name)
            axis.plot(
                one.x, one.y, color=look.color, marker=look.marker, mfc="white", ms=4, ls="--", label=one.name
            )
        grid = [0.2 + 0.01 * step for step in range(181)]
        axis.plot(grid, [ideal(load) for load in grid], color=style.INK, ls=":", lw=1.6, label="ideal")
        axis.set(title=panel, xlabel="offered load, in peaks of the system", ylabel=label)
        axis.set_ylim(bottom=0)
    style.legend(axes.flat[-1], loc="upper right")
    return [style.save(figure, folder, NAME)]
