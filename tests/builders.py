"""Small builders of values that many tests need."""

from __future__ import annotations

import math

import numpy as np

from tuner.agents.agent import State
from tuner.control import ControlLoop, Decision
from tuner.control.decide.event import InForce, WindowEnded
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace, Role
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo

SPACE = KnobSpace(
    [
        Knob(name="max_batch_size", grid=(1, 2, 4, 8, 16), default=1, role=Role.BATCH),
        Knob(name="max_queue_delay", grid=(0.0, 0.002, 0.01), default=0.0, unit="s", role=Role.DELAY),
        Knob(
            name="instances",
            grid=(1, 2),
            default=1,
            apply_cost=ApplyCost.IN_PLACE,
            role=Role.PARALLELISM,
        ),
    ]
)
OBJECTIVE = Objective(slo=Slo(statistic="p95", latency=0.030), cores=2.0)


def configuration(batch: float = 1, delay: float = 0.0, instances: float = 1) -> Configuration:
    """A configuration of SPACE."""
    return Configuration(max_batch_size=batch, max_queue_delay=delay, instances=instances)


def measurement(
    p95: float = 0.020,
    *,
    running: Configuration | None = None,
    rate: float = 200.0,
    end: float = 10.0,
    failures: int = 0,
    cpu: float = 1.0,
    waiting: float = 0.0,
    waited: float = math.inf,
    disturbed: tuple[str, ...] = (),
) -> Measurement:
    """A window of five seconds."""
    return Measurement(
        start=end - 5.0,
        end=end,
        configuration=running if running is not None else configuration(),
        requests=int(rate * 5),
        failures=failures,
        arrival_rate=rate,
        latency_mean=p95 / 2,
        latency_p50=p95 / 2.5,
        latency_p95=p95,
        latency_p99=p95 * 1.4,
        quantiles_from="client",
        cpu=cpu,
        waiting=waiting,
        waited=waited,
        disturbed=disturbed,
    )


def turn(loop: ControlLoop, now: float, window: Measurement) -> Decision:
    """One turn of a driver: the loop observes a window, and the rules decide."""
    loop.observe(WindowEnded(now, window))
    return loop.decide()


def changed(
    loop: ControlLoop, previous: Configuration, *, now: float = 0.0, cost: ApplyCost = ApplyCost.RELOAD
) -> None:
    """What the loop observes after a change."""
    loop.observe(InForce(previous, now=now, cost=cost))


def taken_back(
    loop: ControlLoop, previous: Configuration, *, now: float = 0.0, cost: ApplyCost = ApplyCost.RELOAD
) -> None:
    """What the loop observes after a rollback."""
    loop.observe(InForce(previous, back=True, now=now, cost=cost))


class ScriptedAgent:
    """An agent that proposes what a test sets, as far as that is allowed."""

    def __init__(self, *proposals: Configuration) -> None:
        self.proposals = [SPACE.encode(p) for p in proposals]
        self.learned: dict[int, float] = {}
        self.updates: list[tuple[int, int, float]] = []
        self.selects = 0

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        self.selects += 1
        wanted = self.proposals.pop(0) if self.proposals else state.configuration
        return wanted if allowed is None or wanted in allowed else state.configuration

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        known = [c for c in self.learned if allowed is None or c in allowed]
        return min(known, key=lambda c: self.learned[c], default=state.configuration)

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        self.learned[configuration] = cost
        self.updates.append((state.level, configuration, cost))

    def costs(self, level: int) -> np.ndarray:
        costs = np.full(SPACE.size, np.nan)
        for index, cost in self.learned.items():
            costs[index] = cost
        return costs

    def save(self, folder: object) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass
