"""Half an hour of load through the dispatcher: whether its memory, its files or its latencies grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil

from tuner.experiments.daemon.memory import growth, resident
from tuner.experiments.dispatch.bench import (
    MODELS,
    CheckingClients,
    arrivals,
    dispatching,
    rates_of,
    servers,
)
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["DispatchSoak"]

SERVED = tuple(one for one in MODELS if one.name != "cnn")
"""At this rate all three models would be near what two cores can do, where every pause shows for long."""
RATE = 500.0
"""Requests/s."""
PIECE = 30.0
"""s of load after which is looked."""
DRIFT = 10.0
"""Most growth of the median latency, %: between two pieces it differs by as much by chance."""
PANELS = {"latency, ms": ("p50", "p99"), "memory, MiB": ("memory",)}
"""Of the figure, and what they show."""


class Piece(NamedTuple):
    """What one piece of the load came to."""

    p50: float
    """ms"""
    p99: float
    """ms"""
    memory: float
    """Of the dispatcher, MiB."""
    files: int
    """That it has open."""


class Soaked(NamedTuple):
    """What all of it came to."""

    pieces: list[Piece]
    statuses: dict[str, int]
    wrong: int


@experiment(
    name="dispatch-soak",
    title="Half an hour at 500 requests/s through the dispatcher: memory, open files and latencies",
    minutes=31,
    live=True,
    repeated=False,
)
class DispatchSoak(OneTaskExperiment[Soaked]):
    """Offers a steady load to two models on two servers, and looks twice a minute."""

    minutes = Scaled(30.0, quick=0.05)
    piece = Scaled(PIECE, quick=1.0)
    rate = Scaled(RATE, quick=100.0)

    def measure(self, task: None, seed: int) -> Soaked:  # noqa: ARG002 - there is one
        pieces: list[Piece] = []
        statuses: Counter[str] = Counter()
        wrong = 0
        with servers(2, SERVED) as tritons, dispatching(tritons, SERVED) as dispatcher:
            process = psutil.Process(dispatcher.pid)
            clients = CheckingClients([dispatcher.address], SERVED)
            clients.learn(f"127.0.0.1:{tritons[0].ports.grpc}")
            for number in range(round(60 * self.minutes / self.piece)):
                offered = arrivals(rates_of(SERVED, self.rate), self.piece, seed + number)
                found = clients.offer(offered, seed=seed + number)
                statuses.update(one.status for one in found)
                wrong += sum(not one.right for one in found)
                p50, p99 = np.quantile(
                    [1e3 * one.latency for one in found if one.status == "OK"], (0.5, 0.99)
                )
                pieces.append(Piece(float(p50), float(p99), resident(process), process.num_fds()))
                self.report(f"{pieces[-1]}, {dict(statuses)}")
        return Soaked(pieces, dict(statuses), wrong)

    def rows(self, found: Answers[None, Soaked]) -> Iterator[Row]:
        (soaked,) = found[None]
        p50, p99, memory, files = zip(*soaked.pieces, strict=True)
        sent = sum(soaked.statuses.values())
        yield row("requests", [float(sent)])
        yield row("answered", [100 * soaked.statuses.get("OK", 0) / sent], unit="%")
        yield row("answers of another request", [float(soaked.wrong)], published=0.0)
        yield row("p50", p50, unit="ms", note="by piece of 30 s")
        yield row("p99", p99, unit="ms", note="by piece of 30 s")
        yield row("growth of p50 after warm-up", [growth(p50)], unit="%", published=DRIFT, note="below")
        yield row("growth of memory after warm-up", [growth(memory)], unit="%", published=5.0, note="below")
        yield row("memory at the end", [memory[-1]], unit="MiB")
        yield row("growth of open files after warm-up", [growth(files)], unit="%", published=0.0)

    def series(self, found: Answers[None, Soaked]) -> Iterator[Series]:
        (soaked,) = found[None]
        minutes = [(number + 1) * self.piece / 60 for number in range(len(soaked.pieces))]
        for panel, names in PANELS.items():
            for name in names:
                yield curve(name, minutes, [[getattr(one, name)] for one in soaked.pieces], panel=panel)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw latencies and memory against the time."""
        figure, axes = style.figure("Half an hour through the dispatcher", columns=2)
        for axis, panel in zip(axes[0], PANELS, strict=True):
            style.curves(axis, result.panel(panel))
            axis.set(xlabel="min", ylabel=panel, ylim=(0, None))
            style.legend(axis)
        return [style.Drawing(figure)]

    def configuration(self) -> dict[str, Any]:
        return {"rate": self.rate, "minutes": self.minutes, "piece": self.piece}
