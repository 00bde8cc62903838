"""Random lives of a server: whatever a driver and its control loop can meet, and what they decide.

A life draws everything from its seed: the limits, the objective, the load, how the server answers, what its
metrics show, what operators order and what other people do to the server. Things go wrong far more often than
with a real server, so that nearly every branch of the loop, the guard and the driver decides something.

All randomness comes from `random.Random`, whose stream is the same in all versions of Python.
"""

from __future__ import annotations

import dataclasses
import math
from random import Random
from typing import Any

import numpy as np

from tests.builders import SPACE, measurement
from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.replicas.canary import CanaryTrial, ServedRequests
from tuner.agents.agent import State
from tuner.control import (
    Apply,
    ControlLoop,
    Driver,
    GuardLimits,
    Hold,
    Oversight,
    Rollback,
    Watched,
    WindowRecord,
)
from tuner.control.decide.event import Remembered
from tuner.control.decide.orders import Orders
from tuner.errors import AdapterError, Refused, TimedOut, Unreachable
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo

WINDOW = 5.0
ACTIONS = {Hold: "hold", Apply: "apply", Rollback: "roll back"}
OBJECTIVES = [
    ("p95", 0.030, "latency"),
    ("mean", 0.015, "strict"),
    ("p95", 0.030, "cpu"),
    ("p99", 0.02, "latency"),
]
CARE: list[dict[str, Any]] = [
    {},
    {"budget": 0.04},
    {"step": 1.0, "patience": 4},
    {"breaker": 2, "retry_after": 3},
    {"reloads_per_hour": 5},
    {"budget": 0.1, "patience": 3},
]


class Table:
    """An agent that remembers mean costs, and explores at random."""

    def __init__(self, random: Random, guess: float, space: KnobSpace = SPACE) -> None:
        self._random = random
        self._size = space.size
        self._guess = guess  # of what was never tried; NaN: nothing is known
        self._learned: dict[tuple[int, int], tuple[int, float]] = {}

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        assert allowed is not None
        return int(self._random.choice(allowed)) if self._random.random() < 0.5 else self.best(state, allowed)

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        assert allowed is not None
        costs = self.costs(state.level)
        return min(map(int, allowed), key=lambda c: (math.inf if math.isnan(costs[c]) else costs[c], c))

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        count, mean = self._learned.get((state.level, configuration), (0, 0.0))
        weight = max(1 / (count + 1), 0.2)
        self._learned[state.level, configuration] = count + 1, mean + weight * (cost - mean)

    def costs(self, level: int) -> np.ndarray:
        costs = np.full(self._size, self._guess)
        for (at, configuration), (_, mean) in self._learned.items():
            if at == level:
                costs[configuration] = mean
        return costs

    def save(self, folder: object) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class RandomServer:
    """A server with its profiler, its clock and its operators.

    Args:
        random: Where everything comes from.
        trouble: How often something goes wrong: 0 is never, 1 is several times in ten windows.
    """

    space = SPACE

    def __init__(self, random: Random, trouble: float) -> None:
        self._random = random
        self._trouble = trouble
        self._time = 0.0
        self._away_until = -1.0
        self._mixed_until = -1.0
        self._failing_until = -1.0
        self._refusing_until = -1.0
        self._capacity = random.choice([60.0, 150.0, 400.0])
        self._rate = 100.0
        self._waiting = 0.0
        self._turn = random.choice([None, None, (100.0, 300.0, 60.0), (40.0, 700.0, 100.0)])
        self.original = self.running = self.anything()
        self._orders = Orders()

    def now(self) -> float:
        return self._time

    def sleep(self, seconds: float) -> None:
        self._time += seconds

    def describe(self) -> Description:
        return Description(
            target="random://x/m", server="random", version="1", model="m", writable=True, quantiles=True
        )

    def current(self) -> Configuration:
        if self._time < self._away_until:
            raise Unreachable("no answer")
        return self.running

    def apply(self, wanted: Configuration) -> ApplyReport:
        self.current()
        before = self.running
        fate = self._happens(refused=0.06, late=0.03, lost=0.03)
        if self._happens(stubborn=0.05):
            self._refusing_until = self._time + self._random.uniform(20.0, 500.0)
        if fate == "refused" or self._time < self._refusing_until:
            raise Refused("out of memory")
        if fate != "lost":
            self.running = wanted
        if fate:
            raise TimedOut("no answer within 5 s")
        cost = SPACE.apply_cost(before, wanted)
        took = {ApplyCost.FREE: 0.0, ApplyCost.IN_PLACE: 0.2}.get(cost, self._random.uniform(0.5, 9.0))
        self._time += took
        self._waiting = took
        if wanted != before and self._random.random() < 0.5:
            self._mixed_until = self._time + self._random.uniform(2.0, 20.0)
        return ApplyReport(
            configuration=wanted,
            changed=wanted != before,
            cost=cost,
            seconds=took,
            settle=self._random.choice([0.0, 1.0]),
        )

    def counters(self) -> Counters:
        raise NotImplementedError

    def profile(self) -> None:
        return None

    def close(self) -> None:
        pass

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        fate = self._happens(away=0.03, restarted=0.02, unseen=0.05, taken_over=0.02)
        if fate in ("away", "restarted"):
            self._away_until = self._time + self._random.choice([0.1, 3.0, 30.0, 200.0])
            if fate == "restarted":
                self.running = self.original
            elif self._random.random() < 0.2:
                self.running = self.anything()
            self._time += 0.05
            raise Unreachable("no answer")
        if fate == "unseen":
            self._time += seconds
            raise TimedOut("metrics: no answer")
        if fate == "taken_over":
            self.running = self.anything()
        self._time += settle + seconds
        return self._shown(seconds)

    def read(self) -> Orders:
        fate = self._happens(paused=0.02, pinned=0.015, rollback=0.015, nothing=0.1)
        if fate == "nothing":
            self._orders = Orders()
        elif fate == "paused":
            self._orders = dataclasses.replace(self._orders, paused="by Ada")
        elif fate:
            wanted: dict[str, Any] = {fate: self.anything()}
            self._orders = dataclasses.replace(self._orders, **wanted)
        return self._orders

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        self._orders = dataclasses.replace(self._orders, pinned=found)

    def done(self, rollback: Configuration) -> None:
        self._orders = dataclasses.replace(self._orders, rollback=None)

    def permit(self, decision: Apply | Rollback) -> bool:
        return isinstance(decision, Rollback) or self._random.random() > 0.1 * self._trouble

    def _shown(self, seconds: float) -> Measurement:
        """A window as the metrics show it, which may be false."""
        self._load()
        batch, delay, instances = (self.running[name] for name in SPACE.names)
        use = self._rate / (self._capacity * instances * batch**0.6)
        p95 = (0.004 + delay + 0.0007 * batch + 0.004 / max(1.0 - use, 0.02)) * math.exp(
            self._random.gauss(0.0, 0.12)
        )
        m = measurement(p95, running=self.running, rate=self._rate, end=self._time, cpu=min(0.1 + use, 2.0))
        waited = self._rate * self._waiting
        m = dataclasses.replace(
            m,
            start=self._time - seconds,
            quantiles_mixed=self._time < self._mixed_until,
            waiting=waited * self._waiting * self._random.random(),  # some of them waited all the time
            waited=waited,
        )
        self._waiting = 0.0
        if self._happens(unhealthy=0.02):
            self._failing_until = self._time + self._random.uniform(10.0, 90.0)
        if self._time < self._failing_until:
            m = dataclasses.replace(m, failures=self._random.randint(1, 9))
        fate = self._happens(
            failing=0.03, disturbed=0.05, idle=0.02, throttled=0.02, missing=0.03, false=0.03, unordered=0.01
        )
        false: dict[str, dict[str, Any]] = {
            "failing": {"failures": self._random.randint(1, 9)},
            "disturbed": {"disturbed": ("foreign CPU 1.2 cores",)},
            "idle": {"requests": 0, "arrival_rate": 0.0},
            "throttled": {"disturbed": ("throttled 30 % of the time",)},
            "missing": dict.fromkeys(("latency_mean", "latency_p95", "latency_p99", "cpu"), math.nan),
            "false": {"latency_p95": -1.0},
            "unordered": {"latency_p99": p95 / 3},
        }
        return dataclasses.replace(m, **false.get(fate, {}))

    def _load(self) -> None:
        """Load comes and goes by turns; or it stays, jumps among a few levels, or drifts."""
        if self._turn is not None:
            low, high, seconds = self._turn
            self._rate = (low, high)[int(self._time // seconds) % 2] * self._random.uniform(0.97, 1.03)
        elif self._random.random() < 0.04:
            self._rate = self._random.choice([20.0, 100.0, 200.0, 400.0, 900.0])
        elif self._random.random() < 0.1:
            self._rate *= self._random.uniform(0.8, 1.25)

    def anything(self) -> Configuration:
        return SPACE.decode(self._random.randrange(SPACE.size))

    def _happens(self, **chances: float) -> str:
        """Return one of the names with its chance, or else an empty one."""
        number = self._random.random()
        for name, chance in chances.items():
            number -= chance * self._trouble
            if number < 0:
                return name
        return ""


class RandomFleet(RandomServer):
    """A server with several replicas, one of which tries each change first.

    While one tries a change, no operator orders anything, and the maintenance window does not end.
    """

    _tried = False  # whether a trial has just ended well

    def read(self) -> Orders:
        return self._orders if self._tried else super().read()

    def permit(self, decision: Apply | Rollback) -> bool:
        tried, self._tried = self._tried, False
        return tried or super().permit(decision)

    def configurations(self) -> list[Configuration]:
        return [self.current()]

    def try_one(self, configuration: Configuration, wait: Any) -> CanaryTrial | None:
        wait(self._random.choice([0.0, 1.0]))
        fate = self._happens(alone=0.05, slow=0.1, failing=0.05, refused=0.05)
        if fate == "alone":
            return None
        if fate == "refused":
            raise Refused("out of memory")
        good = ServedRequests(requests=100, failures=0, latency=0.5)
        bad = {
            "slow": ServedRequests(requests=100, failures=0, latency=9.0),
            "failing": ServedRequests(requests=90, failures=10, latency=0.5),
        }
        self._tried = fate not in bad
        return CanaryTrial(server="a", tried=bad.get(fate, good), others=good)

    def take_back(self) -> None:
        pass


def random_life(seed: int, windows: int) -> list[str]:
    """Let a driver keep a random server for some windows; return its decisions, one per line."""
    random = Random(seed)
    server = random.choice([RandomServer, RandomFleet])(random, trouble=random.choice([0.0, 0.3, 1.0]))
    statistic, bound, goal = random.choice(OBJECTIVES)
    objective = Objective(
        slo=Slo(statistic=statistic, latency=bound),
        goal=goal,
        cores=2.0,
        change_cost=random.choice([0.0, 0.0, 0.5]),
    )
    agent = Table(random, guess=random.choice([math.nan, 0.3, 0.7]))
    applies = random.random() < 0.9
    limits = GuardLimits(**random.choice(CARE))
    loop = ControlLoop(SPACE, objective, agent, limits=limits, explore=lambda: applies)
    for _ in range(random.choice([0, 0, 7])):
        kept = random.random() < 0.6
        level, ran = 20 + random.randrange(3), server.anything()
        loop.observe(Remembered(level, ran, 0.6 if kept else 1.4, kept))
    driver = Driver(
        Watched(server, server, server),
        loop,
        window=WINDOW,
        oversight=Oversight(apply=applies, permit=server.permit, orders=server, canary=random.random() < 0.5),
        patience=1e9,
        notify=lambda _: None,
    )
    lines = [_line(driver.step()) for _ in range(windows)]
    while True:
        try:
            return [*lines, f"left with {SPACE.encode(SPACE.nearest(driver.finish()))}"]
        except AdapterError:
            server.sleep(60.0)


def _line(record: WindowRecord) -> str:
    decision = record.decision
    words = [str(record.number), f"level={record.level}", ACTIONS[type(decision)]]
    if not isinstance(decision, Hold):
        words.append(str(SPACE.encode(SPACE.nearest(decision.configuration))))
    if isinstance(decision, Apply):
        words += ["exploring"] * decision.exploring + ["restoring"] * decision.restores
    return " ".join([*words, record.outcome, *(["problem"] if record.error else [])])
