"""A Kettle in virtual time: a backend that is its own clock, clients and machine.

``kettlesim://tea?rate=40&seed=1`` needs no server and no waiting. The profiler, the environment
``tuner/Live-v0``, `tuner run` and the daemon measure it as they measure a real server, only faster.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np

from kettle.adapter import KINDS, knobs
from kettle.server import SECONDS
from tuner.adapters import ApplyReport, Counters, Description, Grids
from tuner.adapters.connection.address import Option, parameters
from tuner.adapters.live.knobs import check
from tuner.errors import InvalidInput
from tuner.knobs import Configuration
from tuner.profile import BatchingProfile
from tuner.profiler.source import ClientSample, HostReading

__all__ = ["SimulatedKettle", "connect"]

OPTIONS = {"rate": Option("40", "requests/s"), "seed": Option("0", "of the times at which they come")}


def connect(target: str, grids: Grids) -> SimulatedKettle:
    """Open a target: what the entry point names."""
    given = parameters(urlsplit(target), OPTIONS)
    try:
        rate, seed = float(given["rate"]), int(given["seed"])
    except ValueError:
        rate, seed = math.nan, 0
    if not (0 < rate < math.inf and seed >= 0):
        problem = f"'{target}' needs a rate above 0, and a seed that is a whole number"
        raise InvalidInput("TARGET", problem, "write kettlesim://tea?rate=40&seed=1")
    return SimulatedKettle(target, grids, rate=rate, seed=seed)


class SimulatedKettle:
    """Requests come at random and are answered in their order by as many workers as are set.

    Time passes in `sleep` and `apply` only.
    """

    cores = 8.0

    def __init__(self, target: str, grids: Grids, *, rate: float, seed: int) -> None:
        self.space = knobs(grids)
        self.rate = rate
        self._target, self._grids = target, grids
        self._generator = np.random.default_rng(seed)
        self._now = 0.0
        self._running = self.space.default
        self._free = [0.0] * int(self._running["workers"])  # when each worker is free next, s
        self._next = 0.0  # when the next request comes, s
        # When each request came and was answered, and how long it was executed, s.
        self._sent: list[tuple[float, float, float]] = []

    def reseeded(self, seed: int) -> SimulatedKettle:
        """Return the same server at time 0 with other random numbers: an environment asks for it."""
        return SimulatedKettle(self._target, self._grids, rate=self.rate, seed=seed)

    def describe(self) -> Description:
        return Description(
            target=self._target, server="kettlesim", version="1", model="tea", writable=True, quantiles=False
        )

    def current(self) -> Configuration:
        return self._running

    def apply(self, configuration: Configuration) -> ApplyReport:
        check(self.space, configuration, KINDS.__getitem__)
        before = self._running
        if configuration == before:
            return ApplyReport.unchanged(before)
        self._running = configuration
        self._free = sorted([*self._free, *[self._now] * 8])[-int(configuration["workers"]) :]
        cost = self.space.apply_cost(before, configuration)
        return ApplyReport(configuration=configuration, changed=True, cost=cost, seconds=0.0, settle=0.1)

    def counters(self) -> Counters:
        answered = [end - start for start, end, _ in self._sent if end <= self._now]
        pending = len(self._sent) - len(answered)
        return Counters(time=self._now, requests=len(answered), latency=sum(answered), pending=pending)

    def profile(self) -> BatchingProfile | None:
        return None

    def close(self) -> None:
        """Nothing is held open."""

    # The clock

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        end, execution = self._now + seconds, SECONDS[int(self._running["tile"])]
        while self._next < end:
            start = max(self._next, heapq.heappop(self._free))
            heapq.heappush(self._free, start + execution)
            self._sent.append((self._next, start + execution, execution))
            self._next += float(self._generator.exponential(1.0 / self.rate))
        self._now = end

    # The clients

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def sample(self, start: float, end: float) -> ClientSample:
        came = np.array([one for one in self._sent if start <= one[0] < end]).reshape(-1, 3)
        latency = np.where(came[:, 1] <= self._now, came[:, 1] - came[:, 0], np.nan)
        return ClientSample(intended=came[:, 0], latency=latency, failed=0, lateness=np.zeros(len(came)))

    # The machine

    def read(self) -> HostReading:
        used = sum(execution for _, end, execution in self._sent if end <= self._now)
        return replace(
            HostReading(time=self._now), server=used, own=0.0, total=used, cores=self.cores, steal=0.0
        )
