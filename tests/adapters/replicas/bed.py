"""Replicas that live in memory, for the tests of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.builders import SPACE, configuration
from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.metrics.gpu import GpuUse
from tuner.errors import (
    Refused,
    TimedOut,
    TunerError,
    UnknownModel,
    Unreachable,
)
from tuner.knobs import ApplyCost, Configuration, KnobSpace


class Server:
    """One replica that can go away, refuse and lag behind."""

    def __init__(self, target: str, space: KnobSpace = SPACE) -> None:
        self.target, self.space = target, space
        self.running = configuration()
        self.requests, self.up, self.refuses, self.closed = 0, True, False, False
        self.applied: list[Configuration] = []
        self.fails: dict[Configuration, TunerError] = {}  # by what it is to run
        self.silent, self.asked = False, 0  # whether it lets those wait who ask, and how often it was asked
        self.exports, self.idle = True, False  # quantiles; and whether it has served nothing for a while
        self.loading = False  # whether it is up and does not serve the model yet
        self.affected: float | None = None
        self.pending: float | None = None
        self.gpus: tuple[GpuUse, ...] = ()

    def _answer(self) -> None:
        self.asked += 1
        if self.silent:
            raise TimedOut(f"{self.target}: no answer in time")
        if not self.up:
            raise Unreachable(f"{self.target} is away")

    def endpoint(self) -> Endpoint:
        return Endpoint(wire="wire", address=self.target, model="m")

    def describe(self) -> Description:
        self._answer()
        return Description(
            target=self.target,
            server="fake",
            version="1",
            model="m",
            writable=True,
            quantiles=self.exports,
            quantile_memory=60.0,
            processes=(len(self.target),),
            counts_by_process=True,
            notes=("a note",),
        )

    def current(self) -> Configuration:
        self._answer()
        return self.running

    def apply(self, wanted: Configuration) -> ApplyReport:
        self._answer()
        if self.refuses:
            raise Refused("no")
        if wanted in self.fails:
            raise self.fails[wanted]
        changed, self.running = wanted != self.running, wanted
        self.applied.append(wanted)
        return ApplyReport(
            configuration=wanted, changed=changed, cost=ApplyCost.RELOAD, seconds=0.1, settle=1.5,
            affected=self.affected,
        )  # fmt: skip

    def counters(self) -> Counters:
        self._answer()
        return Counters(
            time=float(self.requests),
            requests=self.requests,
            failures=1,
            latency=0.1 * self.requests,
            queue=0.0,
            compute=0.1,
            inferences=self.requests,
            batch_counts=np.arange(len(self.target)),
            batch_seconds=np.ones(len(self.target)),
            pending=self.pending,
            quantiles={0.95: 0.01 * self.requests}
            if self.requests and self.exports and not self.idle
            else {},
            gpus=self.gpus,
        )

    def profile(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


def opener(servers: dict[str, Server]) -> Callable[[str], Server]:
    """What opens those that are up and serve the model."""

    def connect(target: str) -> Server:
        if servers[target].loading:
            raise UnknownModel("m", ())
        servers[target]._answer()
        return servers[target]

    return connect


class Opened:
    """A backend of a server, which puts back what that ran when this was opened."""

    def __init__(self, server: Server) -> None:
        self._server, self._found = server, server.running

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def restore(self) -> None:
        self._server.apply(self._found)
