"""Held-out servers: random ones of other seeds, in wider ranges, with a bent truth or a lying profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.agents.rrl.neural.knowledge import SIZES
from tuner.agents.rrl.prior import InterpolatedPrior, make_prior
from tuner.agents.rrl.smoothing import coordinates
from tuner.control.decide.load import Loads
from tuner.envs.batched_server import row_measurement
from tuner.envs.randomised import draw_server
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.batched_triton import BatchedTriton
from tuner.envs.simulator.server import ServerModel
from tuner.experiments.neural.samples import known_of, simulator_of
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo

__all__ = ["TRUTHS", "HeldOutServer", "Learning", "Truth", "nominal_prior", "tune"]

PRECISION = ((6, math.inf), (16, 0.2), (64, 0.08))
"""How many windows an exact cost is the mean of, by how far it is from the least at most, in logarithms."""
SLACK = 1.3
"""The SLO is this times the best p95."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """How reality differs from what the estimator was trained on."""

    width: float = 1.0
    """Of the ranges of all constants."""
    bend: float = 0.0
    """Standard deviation of a smooth random field on the logarithm of all latencies."""
    error: float = 0.1
    """Of the profile that is given, standard deviation of the logarithm."""
    lie: bool = False
    """Whether the profile is said to be exact."""
    largest: int | None = 64
    """The largest batch that the profile knows."""


TRUTHS = {
    "like the training": Truth(),
    "wider than the training": Truth(width=1.5),
    "bent truth": Truth(bend=0.3),
    "lying profile": Truth(error=0.3, lie=True),
    "only l(1) known": Truth(error=0.1, largest=1),
}


class HeldOutServer:
    """A server that training has not seen.

    Args:
        family: One of :data:`~tuner.envs.randomised.FAMILIES`.
        truth: How it differs from those of the training.
        seed: Of the server and of everything it does.
    """

    def __init__(self, family: str, truth: Truth, seed: int) -> None:
        self._generator = np.random.default_rng([seed, 2])
        self.server = draw_server(family, self._generator, truth.width)
        self.space = self.server.space
        self._simulator = simulator_of(self.server)
        self._field = self._bend(truth.bend)
        self.knowledge = known_of(
            self.server, truth.error, self._generator, lie=truth.lie, largest=truth.largest
        )
        logs = self._exact()
        self.objective = Objective(
            slo=Slo(statistic="p95", latency=float(SLACK * np.exp(logs.min()))), cores=self.server.model.cores
        )
        self.expected = np.exp(logs) / self.objective.slo.latency
        """Exact cost of every configuration.   # (size,)"""
        self._start = self._generator.bit_generator.state
        self.restart()

    def restart(self) -> None:
        """Forget what was measured: the next windows are those of a new server of this seed."""
        self._generator.bit_generator.state = self._start
        self.number = self.space.encode(self.space.default)

    @property
    def warm_up(self) -> float:
        """Length of the warm-up before a window, s."""
        return self.server.model.warm_up

    @property
    def best(self) -> float:
        """The least exact cost."""
        return float(self.expected.min())

    def measure(self, number: int) -> tuple[float, Measurement]:
        """Run a configuration for a window; returns its cost and what it showed."""
        self.number = number
        seed = np.array([self._generator.integers(2**63)], np.uint64)
        arrays = self._simulator.step(
            np.array([number]), np.array([self.server.rate]), seed, self.server.seconds
        )
        m = row_measurement(arrays, 0, self.space.decode(number))
        bend = float(np.exp(self._field[number]))
        m = replace(
            m,
            latency_mean=m.latency_mean * bend,
            latency_p50=m.latency_p50 * bend,
            latency_p95=m.latency_p95 * bend,
            latency_p99=m.latency_p99 * bend,
        )
        return self.objective.cost(m), m

    def _bend(self, deviation: float) -> np.ndarray:
        """Return a smooth random field over the configurations.   # (size,)."""
        if deviation == 0.0:
            return np.zeros(self.space.size)
        places = coordinates(self.space)
        waves = 64
        frequencies = self._generator.normal(0.0, 0.6, (waves, places.shape[1]))
        phases = self._generator.uniform(0.0, 2.0 * np.pi, waves)
        return np.asarray(
            deviation * np.sqrt(2.0 / waves) * np.cos(places @ frequencies.T + phases).sum(axis=1)
        )

    def _exact(self) -> np.ndarray:
        """Return the mean logarithm of the p95 of every configuration, most exactly near the best."""
        distinct = self.space.distinct
        logs = np.full(self.space.size, np.inf)
        logs[distinct] = 0.0
        for windows, far in PRECISION:
            near = distinct[logs[distinct] <= logs.min() + far]
            logs[near] = self._mean_log(near, windows) + self._field[near]
        return np.asarray(logs[self.space.canonical])

    def _mean_log(self, numbers: np.ndarray, windows: int) -> np.ndarray:
        """Return the mean logarithm of the p95 over windows with the same arrivals for all."""
        seeds = np.repeat(self._generator.integers(2**63, size=windows).astype(np.uint64), numbers.size)
        rates = np.full(seeds.size, self.server.rate)
        arrays = self._simulator.step(np.tile(numbers, windows), rates, seeds, self.server.seconds)
        return np.asarray(np.log(arrays.p95).reshape(windows, -1).mean(axis=0))


class Learning(NamedTuple):
    """How an agent did on a server."""

    above: float  # mean cost over the oracle's, less 1, of the first windows
    settled: float  # windows until within NEAR of the best for good; infinite for never
    broken: float  # share of windows far above the SLO
    first: float  # cost of the first pick over the best, less 1
    ending: float  # of the last


NEAR = 1.05
"""Within this factor of the best counts as near."""
FAR = 1.5
"""Costs above this, over the SLO, count as broken by far."""
LOADS = (0.7, 1.0, 1.4)
"""Over the server's own, at which the nominal simulator says what to expect."""


def tune(server: HeldOutServer, agent: Agent, windows: int, *, taught: bool = True) -> Learning:
    """Let an agent tune a server that was watched for one window, in its default configuration.

    It hears of the rate of the load that the windows belong to, as in the control loop: a window of few
    requests says little of it.

    Args:
        server: It has just started.
        agent: What tunes it.
        windows: How many it has after the one that was watched.
        taught: Whether it learns from that one, too, as in the control loop. A walk that starts elsewhere
            must not: it would go on from the default.
    """
    chosen = []
    number, loads = server.number, Loads(LoadLevels())
    for window in range(windows + 1):
        cost, measurement = server.measure(number)
        loads.observe(measurement, None)
        load = loads.present
        state = State(level=load.level, configuration=number, rate=load.rate, seen=measurement.figures())
        if window or taught:
            agent.update(state, number, cost, state)
        number = agent.select(state, None)
        chosen.append(number)
    chosen.pop()  # nobody measured it
    costs = server.expected[np.array(chosen)]
    ratios = costs / server.best
    off = np.flatnonzero(ratios > NEAR)
    settled = float(off[-1] + 1) if off.size else 0.0
    return Learning(
        above=float(ratios.mean() - 1.0),
        settled=settled if settled < windows else math.inf,
        broken=float((costs > FAR).mean()),
        first=float(ratios[0] - 1.0),
        ending=float(ratios[-1] - 1.0),
    )


def nominal_prior(server: HeldOutServer) -> InterpolatedPrior:
    """Return what a simulator with the profile that is known and nominal constants expects of a Triton."""
    known = server.knowledge
    table = dict(zip(SIZES.astype(int).tolist(), known.seconds.tolist(), strict=True))
    model = BatchedTriton(
        server=ServerModel(table=table, cores=known.cores, name="nominal"), warm_up=server.warm_up
    )
    simulator = BatchedSimulator(model.plans(server.space), model.traffic(1.0 / known.burstiness), workers=1)

    def costs(rate: float) -> np.ndarray:
        numbers = np.arange(server.space.size)
        arrays = simulator.step(
            numbers, np.full(numbers.size, rate), np.zeros(numbers.size), server.server.seconds
        )
        return np.asarray(arrays.p95 / server.objective.slo.latency)

    return make_prior([server.server.rate * load for load in LOADS], costs)
