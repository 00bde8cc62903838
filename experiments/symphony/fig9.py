"""Symphony, Figure 9: how long requests wait for their batch to start, at the goodput of each system.

The delays are read from the event log of a simulation at that rate; the scenarios are those of Table 4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np

from tuner.cluster import EventLog, simulate
from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.two_models import Alone, AtGoodput, panel_name, scenario
from tuner.experiments.zoo import TABLE_4, Setup
from tuner.report import style
from tuner.scheduling.log import ARRIVE, REFUSE, SEND

__all__ = ["QueueingDelays", "delays"]

LOGGED = 50_000
"""Requests whose delays are read, at most."""
POINTS = 60
"""Of a curve."""


@experiment(
    name="symphony-fig9",
    title="Queueing delay at the goodput of each system",
    paper="Symphony",
    minutes=0.5,
)
class QueueingDelays(AtGoodput[np.ndarray]):
    """The queueing delays.   # answers: (n,) ms."""

    def measure(self, task: Alone, seed: int) -> np.ndarray:
        found = self.search(task, seed)
        tried = scenario(task, self.requests, seed).scaled(found.multiplier)
        seconds = min(LOGGED, self.requests) / tried.total_rate
        log = EventLog()
        outcome = simulate(tried.model_copy(update={"seconds": seconds}), log=log)
        queues = tried.accelerators if task.system == "nexus" else 1
        assert isinstance(queues, int), queues
        waits = delays(log.entries, queues, since=tried.warmup_seconds)
        counted = (outcome.sessions[0].mean_queueing, outcome.sessions[0].max_queueing)
        assert np.allclose((waits.mean(), waits.max()), counted), "the log agrees with the engine"
        return waits * 1e3

    def rows(self, found: Answers[Alone, np.ndarray]) -> Iterator[Row]:
        slos = {setup.model.name: setup.slo_ms for setup in TABLE_4}
        for (model, system), waits in found.items():
            name = f"{model}, {system}"
            longest = [float(each.max()) for each in waits]
            share = f"{100 * float(np.median(longest)) / slos[model]:.0f} % of the SLO"
            note = f"{share}; the paper: about half" if system == "nexus" else share
            most = [float(np.quantile(each, 0.99)) for each in waits]
            yield row(f"{name}: median delay", [float(np.median(each)) for each in waits], unit="ms")
            yield row(f"{name}: delay that 99 % stay within", most, unit="ms")
            yield row(f"{name}: longest delay", longest, unit="ms", note=note)

    def points(self, setup: Setup, _: str, waits: list[np.ndarray]) -> tuple[list[float], list[list[float]]]:
        grid = np.linspace(0, 0.7 * setup.slo_ms, POINTS + 1).tolist()
        return grid, [[100 * float((each <= delay).mean()) for each in waits] for delay in grid]

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"requests": min(LOGGED, self.requests)}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the distributions of the delay."""
        figure, axes = style.figure("Queueing delay at each system's own goodput", columns=2)
        for axis, setup in zip(axes.flat, TABLE_4, strict=True):
            for one in result.panel(panel_name(setup)):
                look = style.look(one.name)
                axis.plot(
                    one.x, one.y, color=look.color, marker=look.marker, markevery=6, ms=4, label=one.name
                )
            axis.axvline(setup.slo_ms / 2, color=style.MUTED, ls="--", lw=1, label="half the SLO")
            axis.set(title=panel_name(setup), xlabel="from the arrival to the start of the batch, ms")
            axis.set(ylabel="share of the requests, %", ylim=(0, 102))
            axis.set_xlim(left=0)
            style.legend(axis, loc="lower right")
        return [style.Drawing(figure)]


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
