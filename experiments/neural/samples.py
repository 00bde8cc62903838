"""Training samples of the neural estimator: windows of random servers, and what was known of them before."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tuner.agents.rrl.neural.inputs import inputs_of
from tuner.agents.rrl.neural.knowledge import SIZES, Reference, ServerKnowledge, complete_profile
from tuner.agents.rrl.neural.queueing import queue_of, settings_of, split_time
from tuner.envs.randomised import RandomServer, draw_server
from tuner.envs.simulator.batched import BatchedSimulator, WindowArrays
from tuner.knobs import Role

__all__ = ["Samples", "draw_samples", "known_of", "simulator_of", "watch"]

CONFIGURATIONS = 32
"""Windows of a server, each with another configuration."""
PROMISING = 12
"""How many of them are drawn from those that the formulas think best."""
CEILING = 2.0
"""Latencies count as at most e to this times the least of their server: what overloads it is just bad."""
NEAR = 0.35
"""How fast the weight of a sample falls with its distance from the least latency, in logarithms."""
FAR = 0.08
"""Weight of the worst."""
ERRORS = (0.02, 0.1, 0.2, 0.4)
"""Errors of the profile that is given, drawn at random."""
LIES = 0.25
"""Share of servers whose profile is less exact than it says."""
UNWATCHED = 0.15
"""Share of servers of which no window was seen."""
UNREPORTED = 0.12
"""Share of servers that do not report quantiles; of those that do not report their use; and so on."""
OUTPUTS = 6
"""Mean, p50, p95, p99, CPU, GPU."""


class Samples(NamedTuple):
    """Rows for training; those of one server follow one another."""

    rows: np.ndarray  # (n, INPUTS) float32
    targets: np.ndarray  # (n, OUTPUTS) float32, relative to the formulas; NaN where there is none
    weights: np.ndarray  # (n,) float32


def draw_samples(family: str, seed: int) -> Samples:
    """Draw a server of a family, and return windows of it."""
    generator = np.random.default_rng([seed, 1])
    server = draw_server(family, generator)
    simulator = simulator_of(server)
    knowledge, watched = watch(server, simulator, generator)
    settings = settings_of(server.space, server.model.cores)
    numbers = _choose(server, queue_of(settings, knowledge, server.rate).latency, generator)
    arrays = _windows(simulator, numbers, server.rate, server.seconds, generator)
    simulator.close()
    inputs = inputs_of(
        settings.row(numbers), knowledge, server.rate, None if watched is None else settings.row(watched)
    )
    logs = np.log(np.stack([arrays.mean, arrays.p50, arrays.p95, arrays.p99], axis=1))
    away = logs[:, 2] - logs[:, 2].min()
    logs = np.minimum(logs, logs.min(axis=0) + CEILING)
    cpu = np.log(np.maximum(arrays.cpu, 1e-9)) - inputs.use
    gpu = np.log(np.maximum(arrays.gpu, 1e-9)) - inputs.use
    targets = np.column_stack([logs - inputs.latency[:, None], cpu, gpu])
    weights = FAR + (1.0 - FAR) * np.exp(-np.maximum(away, 0.0) / NEAR)
    return Samples(inputs.rows, np.asarray(targets, np.float32), np.asarray(weights, np.float32))


def _choose(server: RandomServer, latency: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return configurations: some by chance, and some of those that the formulas think best."""
    distinct = server.space.distinct
    some = generator.choice(distinct, CONFIGURATIONS - PROMISING)
    best = distinct[np.argsort(latency[distinct])[: 3 * PROMISING]]
    return np.concatenate([some, generator.choice(best, PROMISING)])


def simulator_of(server: RandomServer) -> BatchedSimulator:
    """Return what simulates a server, in one thread."""
    plans = server.model.plans(server.space)
    return BatchedSimulator(plans, server.model.traffic(server.burstiness), workers=1)


def watch(
    server: RandomServer, simulator: BatchedSimulator, generator: np.random.Generator
) -> tuple[ServerKnowledge, np.ndarray | None]:
    """Return what is known of a server after it was watched for a window, more or less exactly.

    Returns:
        What is known, and the number of the configuration that was watched (1,); None if there was no window.
    """
    knowledge = known_of(server, float(generator.choice(ERRORS)), generator, lie=generator.random() < LIES)
    if generator.random() < UNWATCHED:
        return knowledge, None
    space = server.space
    default = space.encode(space.default)
    number = default if generator.random() < 0.5 else int(generator.choice(space.distinct))
    rate = (
        server.rate if generator.random() < 0.6 else server.rate * float(np.exp(generator.uniform(-0.8, 0.4)))
    )
    arrays = _windows(simulator, np.array([number]), rate, server.seconds, generator)
    known = _with_reference(knowledge, server, number, arrays)
    assert known.reference is not None
    return replace(known, reference=_reported(known.reference, generator)), np.array([number])


def _reported(reference: Reference, generator: np.random.Generator) -> Reference:
    """Return what a server reports of a window: some report no quantiles, no use, or nothing from inside."""
    quantiles, use, inside = generator.random(3) < UNREPORTED
    unknown = np.array([False, quantiles, quantiles, quantiles])
    return replace(
        reference,
        latencies=np.where(unknown, np.nan, reference.latencies),
        use=np.nan if use else reference.use,
        inside=np.full(3, np.nan) if inside else reference.inside,
    )


def _with_reference(
    knowledge: ServerKnowledge, server: RandomServer, number: int, arrays: WindowArrays
) -> ServerKnowledge:
    """Return knowledge with the one window in which a configuration was watched."""
    seen = np.concatenate([arrays.mean, arrays.p50, arrays.p95, arrays.p99])
    inside = np.concatenate([arrays.compute_mean, arrays.queue_mean, arrays.batch_mean])
    use = float((arrays.gpu if knowledge.gpu else arrays.cpu)[0])
    reference = Reference(
        configuration=number, rate=float(arrays.rate[0]), latencies=seen, use=use, inside=inside
    )
    if server.space.with_role(Role.INTER_OP) is None:
        return replace(knowledge, reference=reference)
    # Of a graph nobody knows l(b): only such a window shows it.
    one = settings_of(server.space, server.model.cores).row(np.array([number]))
    run = float(arrays.compute_mean[0]) / float(split_time(one, server.model.cores)[0])
    seconds, _ = complete_profile({1.0: (run, 0.1)})
    return replace(knowledge, seconds=seconds, reference=reference)


def known_of(
    server: RandomServer,
    error: float,
    generator: np.random.Generator,
    *,
    lie: bool = False,
    largest: int | None = None,
) -> ServerKnowledge:
    """Return a server's profile with an error.

    Args:
        server: The server.
        error: Standard deviation of the logarithm of l(b); half of it is common to all sizes.
        generator: Draws.
        lie: Whether the profile is said to be exact.
        largest: The largest batch that was seen; drawn if None.
    """
    sizes = SIZES.astype(int)
    last = int(generator.choice(sizes)) if largest is None else largest
    known = sizes[sizes <= last]
    wrong = server.executions[: known.size] * np.exp(
        generator.normal(0.0, 0.7 * error) + generator.normal(0.0, 0.7 * error, known.size)
    )
    doubt = 0.03 if lie else error
    seconds, doubts = complete_profile(
        {float(b): (float(s), doubt) for b, s in zip(known, wrong, strict=True)}
    )
    gpu = server.model.kind == "tfserving_gpu"
    return ServerKnowledge(
        cores=float(server.model.cores),
        gpu=gpu,
        seconds=seconds,
        doubt=doubts,
        burstiness=float(np.clip(1.0 / server.burstiness * np.exp(generator.normal(0.0, 0.15)), 0.05, 20.0)),
    )


def _windows(
    simulator: BatchedSimulator,
    numbers: np.ndarray,
    rate: float,
    seconds: float,
    generator: np.random.Generator,
) -> WindowArrays:
    """Simulate one window of each configuration, each with arrivals of its own."""
    seeds = generator.integers(2**63, size=numbers.size).astype(np.uint64)
    return simulator.step(numbers, np.full(numbers.size, rate), seeds, seconds)
