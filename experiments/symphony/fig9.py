"""Symphony, Figure 9: how long requests wait for their batch to start, at the goodput of each system.

The delays are read from the event log of a simulation at that rate; the scenarios are those of Table 4.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import numpy as np

from tuner.cluster import EventLog, simulate
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.two_models import Task, panel_name, scenario, search, tasks_of
from tuner.experiments.zoo import TABLE_4, Setup
from tuner.report import style
from tuner.report.series import curve
from tuner.scheduling.log import ARRIVE, REFUSE, SEND

__all__ = ["delays", "plot", "run"]

NAME = "symphony-fig9"
SYSTEMS = ("symphony", "nexus", "clockwork", "eager")
LOGGED = 50_000
"""Requests whose delays are read."""
POINTS = 60
"""Of a curve."""


def run(options: Options) -> Result:
    """Search every goodput and read the delays there."""
    tasks = tasks_of(options, SYSTEMS)
    found = dict(zip(tasks, options.run_all(measure, tasks, "models, systems and seeds"), strict=True))
    rows: list[Row] = []
    series = []
    for setup in TABLE_4:
        grid = np.linspace(0, 0.7 * setup.slo_ms, POINTS + 1)
        for system in SYSTEMS:
            waits = [found[t] for t in tasks if (t.model, t.system) == (setup.model.name, system)]
            rows += _rows(setup, system, waits)
            shares = [[100 * float((each <= delay).mean()) for each in waits] for delay in grid]
            series.append(curve(system, list(grid), shares, panel=panel_name(setup)))
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"requests": min(LOGGED, tasks[0].requests), "arrivals": "Poisson", "bad_rate": 0.01},
        rows=rows,
        series=series,
    )


def measure(task: Task) -> np.ndarray:
    """Return the queueing delays at the goodput.   # (n,) ms."""
    found = search(task)
    tried = scenario(task).scaled(found.multiplier)
    seconds = min(LOGGED, task.requests) / tried.total_rate
    log = EventLog()
    outcome = simulate(tried.model_copy(update={"seconds": seconds}), log=log)
    queues = tried.accelerators if task.system == "nexus" else 1
    assert isinstance(queues, int), queues
    waits = delays(log.entries, queues, since=tried.warmup_seconds)
    told = (outcome.sessions[0].mean_queueing, outcome.sessions[0].max_queueing)
    assert np.allclose((waits.mean(), waits.max()), told), "the log tells the same as the engine"
    return waits * 1e3


def delays(entries: np.ndarray, queues: int, since: float = 0.0) -> np.ndarray:
    """Return how long the requests of one session waited for their batches.   # (n,) s.

    A command names its oldest request; the others are those that wait behind it in the same queue.

    Args:
        entries: Of the log, complete.   # (L,) ENTRY
        queues: Over how many queues one frontend deals the requests in turn.
        since: s; only requests that came then or later count.
    """
    waiting: list[list[int]] = [[] for _ in range(queues)]
    came: list[float] = []
    waits: list[float] = []
    columns = (entries[name].tolist() for name in ("kind", "time", "number", "count", "started"))
    for kind, now, number, count, started in zip(*columns, strict=True):
        queue = waiting[number % queues]
        if kind == ARRIVE:
            queue.append(number)
            came.append(now)
        elif kind in {SEND, REFUSE}:
            first = bisect_left(queue, number)  # Clockwork may begin behind the oldest
            if kind == SEND:
                taken = [came[each] for each in queue[first : first + count]]
                waits += [started - time for time in taken if time >= since]
            del queue[first : first + count]
    return np.array(waits)


def _rows(setup: Setup, system: str, waits: list[np.ndarray]) -> list[Row]:
    name = f"{setup.model.name}, {system}"
    longest = [float(each.max()) for each in waits]
    share = f"{100 * float(np.median(longest)) / setup.slo_ms:.0f} % of the SLO"
    note = f"{share}; the paper: about half" if system == "nexus" else share
    return [
        row(f"{name}: median delay", [float(np.median(each)) for each in waits], unit="ms"),
        row(
            f"{name}: delay that 99 % stay within",
            [float(np.quantile(each, 0.99)) for each in waits],
            unit="ms",
        ),
        row(f"{name}: longest delay", longest, unit="ms", note=note),
    ]


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the distributions of the delay."""
    figure, axes = style.figure("Queueing delay at each system's own goodput", columns=2)
    for axis, setup in zip(axes.flat, TABLE_4, strict=True):
        for one in result.panel(panel_name(setup)):
            look = style.look(one.name)
            axis.plot(one.x, one.y, color=look.color, marker=look.marker, markevery=6, ms=4, label=one.name)
        axis.axvline(setup.slo_ms / 2, color=style.MUTED, ls="--", lw=1, label="half the SLO")
        axis.set(title=panel_name(setup), xlabel="from the arrival to the start of the batch, ms")
        axis.set(ylabel="share of the requests, %", ylim=(0, 102))
        axis.set_xlim(left=0)
        style.legend(axis, loc="lower right")
    return [style.save(figure, folder, NAME)]
