"""Learning: windows per minute in the environments, one region update, and what a decision waits for.

*Windows* have about 1,000 requests. The vector form has 256 servers that are given configurations at
random, good and hopeless ones alike; the single environment of the same kind, with the same
actions, is the baseline. Both are per minute of time on *one* core, which other work on the machine does not
shorten; the note has
the vector form's by the clock on the wall, with all the cores that it may use and whatever else ran on them.

*The region update* is eq. 2 over a region that is there already, and with finding the region first; the
baseline is the update in plain Python. All 1,331 configurations at once is the largest region there is.

*A decision* is ``RRL.update`` or ``RRL.select``, called while the estimator trains in its thread; the
baseline is the same with the estimator at rest. By the clock, for waiting is what is asked about. An agent
that trains inside ``update`` shows what would be waited for. Of the default agent, with its neural estimator,
what counts is the time from a window to the next configuration, on one thread and with the estimator at rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np

import tuner.envs  # noqa: F401  (registers the environments)
from tuner.agents.agent import State
from tuner.agents.rrl import RRL
from tuner.agents.rrl.table.region import region_update
from tuner.agents.threads import one_blas_thread
from tuner.envs.batched_server import row_measurement
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.tfserving_cpu import TFServingCPU
from tuner.experiments.benchmarks.report import BenchOptions, BenchRow, compared, seconds_of
from tuner.knobs import KnobSpace
from tuner.laboratory.parallel import cores
from tuner.objective import Objective, Slo

__all__ = ["run"]

SERVERS = 256
STEPS = 4
QUICK = 16
ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "TFServingCPU-v0": ("tuner/TFServingCPU-v0", {}),
    "TFServingCPU-v0, deepspeech": ("tuner/TFServingCPU-v0", {"model": "deepspeech"}),
    "TFServingGPU-v0": ("tuner/TFServingGPU-v0", {}),
    "TritonCPU-v0 without carrying over": ("tuner/TritonCPU-v0", {"carry_over": False}),
    "TritonCPU-v0": ("tuner/TritonCPU-v0", {}),
    "Cluster-v0": ("tuner/Cluster-v0", {"window": 0.25}),
}
REGIONS = (1.0, 2.0, 3.0, 20.0)
"""Sizes of regions; the last holds every configuration."""
UPDATES = 2000
DECISIONS = 100
BEFORE = 20
"""Decisions before those that are timed: kernels are compiled, the network has learned something."""
PAUSE = 0.02
"""Longest pause before a decision, s: a training takes several times as long."""
LEVEL = 12
MEASURED = (5, 50, 150)
"""Windows that a decision with the neural estimator rests on, each of another configuration ..."""
NEXT = 10
"""... and how many decisions from there on are timed."""
RATE, SECONDS, SLO = 14.0, 60.0, 0.55
"""Load, requests/s, length of a window and objective, s, of the server that the agent tunes."""


def run(options: BenchOptions) -> list[BenchRow]:
    """Measure everything; ``options.repeats`` is how often."""
    smaller = QUICK if options.quick else 1
    servers = max(SERVERS // smaller, 2)
    rows = [_windows(name, servers, options.repeats) for name in options.track(ENVIRONMENTS, "environments")]
    space = TFServingCPU().space()
    for delta in REGIONS:
        rows += _region(space, delta, UPDATES // smaller, options.repeats)
    rows += _decisions(space, DECISIONS // smaller)
    rows += _neural_decisions(MEASURED[: 1 if options.quick else None], options.repeats)
    return rows


def _windows(name: str, servers: int, repeats: int) -> BenchRow:
    """Measure windows per minute of the vector form beside the single environment."""
    identifier, arguments = ENVIRONMENTS[name]
    endless = {**arguments, "episode_windows": 10**6}
    many = gym.make_vec(identifier, num_envs=servers, vectorization_mode="vector_entry_point", **endless)
    alone = gym.make(identifier, disable_env_checker=True, **endless)
    actions = np.random.default_rng(1).integers(0, int(alone.action_space.n), (STEPS, servers))  # type: ignore[attr-defined]

    def all_at_once() -> None:
        for row in actions:
            many.step(row)

    def one_by_one() -> None:
        for action in actions.ravel()[: max(servers // 4, 4)]:
            alone.step(action)

    many.reset(seed=1)
    alone.reset(seed=1)
    few = max(servers // 4, 4)
    on_core, single = seconds_of(all_at_once, repeats) / actions.size, seconds_of(one_by_one, repeats) / few
    clock = median(_wall(all_at_once, repeats)) / actions.size
    many.close()
    alone.close()
    return compared(
        f"windows, {name}, {servers} at once",
        60.0 / on_core,
        60.0 / single,
        "windows/min/core",
        note=f"baseline: the environment alone; by the clock on {cores()} cores {60.0 / clock:,.0f} a minute",
    )


def _wall(work: Callable[[], object], repeats: int) -> list[float]:
    """Return how long some work takes each time, s."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return times


def _region(space: KnobSpace, delta: float, updates: int, repeats: int) -> Iterator[BenchRow]:
    """Measure one region update, with the region at hand and without."""
    middle = space.size // 2
    region = space.region(middle, delta)
    q, estimates, rates = np.ones(space.size), np.ones(region.size), np.full(region.size, 0.1)

    def update() -> None:
        for _ in range(updates):
            region_update(q, region, estimates, rates, 0.0)

    def find_and_update() -> None:
        for _ in range(updates // 10):
            region_update(q, space.region(middle, delta), estimates, rates, 0.0)

    def plain() -> None:
        for _ in range(updates // 10):
            _plain_update(q, region, estimates, rates)

    few = max(updates // 10, 1)
    rival = 1e6 * seconds_of(plain, repeats) / few
    size = f"{region.size} configurations"
    at_hand = 1e6 * seconds_of(update, repeats) / updates
    found = 1e6 * seconds_of(find_and_update, repeats) / few
    note = f"{size}; baseline: plain Python"
    yield compared(f"region update, delta {delta:g}", at_hand, rival, "us", less=True, note=note)
    yield compared(f"region update, delta {delta:g}, region found first", found, None, "us", note=size)


def _plain_update(q: np.ndarray, region: np.ndarray, estimates: np.ndarray, rates: np.ndarray) -> None:
    """The update as one would write it without a compiler."""
    for i, c in enumerate(region):
        q[c] = (1.0 - rates[i]) * q[c] + rates[i] * estimates[i]


def _decisions(space: KnobSpace, decisions: int) -> Iterator[BenchRow]:
    """Measure updates and choices while the estimator trains, while it rests, and with training inside."""
    busy = _decision_times(RRL(space, seed=1), decisions)
    rest = _decision_times(RRL(space, seed=1), decisions // 4, rest=True)
    inside = _decision_times(RRL(space, seed=1, synchronous=True), decisions // 4)
    size = f"{space.size} configurations"
    for kind in busy:
        for share, word in ((0.5, "median"), (0.95, "p95")):
            value, rival = (1e6 * float(np.quantile(times[kind], share)) for times in (busy, rest))
            name, note = (
                f"{kind} while the estimator trains, {word}",
                f"{size}; baseline: the estimator rests",
            )
            yield compared(name, value, rival, "us", less=True, note=note)
    value = 1e6 * float(np.median(inside["RRL.update"]))
    yield compared("RRL.update with training inside, median", value, None, "us", note=size)


def _decision_times(agent: RRL, decisions: int, *, rest: bool = False) -> dict[str, np.ndarray]:
    """Return how long every update and every choice took, s.

    Args:
        agent: It is closed in the end.
        decisions: How many are timed.
        rest: Whether the estimator may finish its training before each.
    """
    generator = np.random.default_rng(2)
    trainer = agent.perception.trainer
    times: dict[str, list[float]] = {"RRL.update": [], "RRL.select": []}
    state = State(level=LEVEL, configuration=0)

    def timed(kind: str, call: Callable[[], object]) -> None:
        if rest:
            trainer.wait(60.0)
        elif trainer.background:
            time.sleep(generator.uniform(0.0, PAUSE))  # into the middle of the training that is going on
        begin = time.perf_counter()
        call()
        times[kind].append(time.perf_counter() - begin)

    for number in range(decisions + BEFORE):
        cost, choice = float(generator.uniform(0.3, 3.0)), int(generator.integers(agent.space.size))
        timed("RRL.update", partial(agent.update, state, choice, cost, state))
        timed("RRL.select", partial(agent.select, state))
        if number < BEFORE:
            trainer.wait(60.0)
    agent.close()
    return {kind: np.array(values[BEFORE:]) for kind, values in times.items()}


def _neural_decisions(measured: tuple[int, ...], repeats: int) -> Iterator[BenchRow]:
    """Measure how long the default agent takes from a window to the next configuration."""
    times: dict[int, list[float]] = {count: [] for count in measured}
    for seed in range(repeats):
        found = _times_of_windows(seed, max(measured) + NEXT)
        for count in measured:
            times[count] += found[count : count + NEXT]
    for count, values in times.items():
        name = (
            f"rrl with its neural estimator, from a window to the next configuration, after {count} windows"
        )
        note = f"1,331 configurations, one thread; at most {1e3 * max(values):.1f} ms"
        yield compared(name, 1e3 * median(values), None, "ms", note=note)


def _times_of_windows(seed: int, windows: int) -> list[float]:
    """Return how long an agent took after each window, s; each is of a configuration drawn at random."""
    model = TFServingCPU()
    space = model.space()
    simulator = BatchedSimulator(model.plans(space), model.traffic(1.0), workers=1)
    goal = Objective(slo=Slo(statistic="p95", latency=SLO), cores=model.cores)
    agent, generator, times = RRL(space, objective=goal, seed=seed), np.random.default_rng(seed), []
    number = space.encode(space.default)
    for _ in range(windows):
        draw = generator.integers(2**63, size=1).astype(np.uint64)
        arrays = simulator.step(np.array([number]), np.array([RATE]), draw, SECONDS)
        m = row_measurement(arrays, 0, space.decode(number))
        level = agent.levels.level(m.arrival_rate)
        state = State(level=level, configuration=number, rate=m.arrival_rate, seen=m.figures())
        agent.perception.trainer.wait(60.0)
        begin = time.perf_counter()
        with one_blas_thread():
            agent.update(state, number, goal.cost(m), state)
            agent.select(state)
        times.append(time.perf_counter() - begin)
        number = int(generator.choice(space.distinct))
    agent.close()
    simulator.close()
    return times
