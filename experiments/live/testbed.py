"""The bench of the live experiments: an embedded server under a load of our own, and its knob grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.agents.agent import Agent
from tuner.control import ControlLoop, Driver, GuardLimits, Watched
from tuner.control.drive.sweep import measure_configurations
from tuner.errors import AdapterError
from tuner.knobs import Configuration
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo
from tuner.profiler.attachment import Attachment, attach
from tuner.setting import Load

__all__ = [
    "GRIDS",
    "QUICK_GRIDS",
    "RATES",
    "distinct",
    "drive",
    "measure_beside_best",
    "measure_in_turns",
    "objective",
    "repeated",
    "tfserving",
    "triton",
]

RATES = (140.0, 350.0)
"""The two load levels, requests/s: below and above what the default configuration can serve."""
GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 2, 4, 8, 16, 32),
    "max_queue_delay": (0.0, 0.002, 0.005, 0.01),
    "instances": (1, 2),
}
QUICK_GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 4, 16),
    "max_queue_delay": (0.0, 0.005),
    "instances": (1, 2),
}
CHOOSING = 2
"""Rounds that choose the best of several configurations."""
LIVES = 3
"""Servers that may be started for one piece of work."""
T = TypeVar("T")
TFSERVING_GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 2, 4, 8, 16, 32),
    "batch_timeout": (0.0, 0.002, 0.005, 0.01),
}


@contextmanager
def triton(
    rate: float,
    *,
    quick: bool = False,
    seed: int = 0,
    model: str = "mlp",
    grids: dict[str, tuple[float, ...]] | None = None,
    foreign_limit: float | None = None,
    options: TritonOptions | None = None,
) -> Iterator[Attachment]:
    """Start a fresh embedded server under Poisson load and attach to it."""
    chosen = grids or (QUICK_GRIDS if quick else GRIDS)
    with (
        EmbeddedTriton(model, options=options) as server,
        attach(
            server.target, grids=chosen, load=Load(rate=rate), seed=seed, foreign_limit=foreign_limit
        ) as attachment,
    ):
        attachment.profiler.measure(2.0)  # the first requests of a fresh server are slow
        yield attachment


@contextmanager
def tfserving(rate: float, *, seed: int = 0) -> Iterator[Attachment]:
    """Start a fresh TensorFlow Serving, or its stand-in, under Poisson load and attach to it."""
    from tuner.adapters.tfserving.embedded import EmbeddedTFServing

    with (
        EmbeddedTFServing("mlp") as server,
        attach(server.target, grids=TFSERVING_GRIDS, load=Load(rate=rate), seed=seed) as attachment,
    ):
        attachment.profiler.measure(2.0)  # the first requests of a fresh server are slow
        yield attachment


def repeated(work: Callable[[], T], report: Callable[[str], None]) -> T:
    """Do a piece of work that starts a server; begin it again if the server ends by itself.

    Triton 2.51 seldom does ("malloc(): unaligned tcache chunk detected"). The piece is lost then, not the
    hours before it.

    Args:
        work: What to do.
        report: Receives a sentence about each repetition.

    Raises:
        AdapterError: The last of the servers ended, too.
    """

    def say(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        report(f"begun again, because {error}")

    kind = retry_if_exception_type(AdapterError)
    return Retrying(stop=stop_after_attempt(LIVES), retry=kind, after=say, reraise=True)(work)


def distinct(attachment: Attachment) -> list[Configuration]:
    """Return the configurations that differ in effect."""
    return [attachment.space.decode(int(index)) for index in attachment.space.distinct]


def objective(attachment: Attachment, *, slo: float = 0.030, goal: str = "latency") -> Objective:
    """Return the objective of the experiments: p95 within ``slo`` seconds."""
    return Objective(slo=Slo(statistic="p95", latency=slo), goal=goal, cores=attachment.host.cores)


def drive(
    attachment: Attachment, goal: Objective, agent: Agent, *, window: float, limits: GuardLimits | None = None
) -> Driver:
    """Return a driver that lets an agent tune an attached server."""
    loop = ControlLoop(attachment.space, goal, agent, limits=limits)
    return Driver(Watched(attachment.backend, attachment.profiler, attachment.clock), loop, window=window)


def measure_in_turns(
    attachment: Attachment, configurations: Sequence[Configuration], *, seconds: float, rounds: int
) -> dict[Configuration, list[float]]:
    """Return the p95 of each configuration in every round, s: compared round by round, drift cancels out."""
    p95: dict[Configuration, list[float]] = {}
    turns = measure_configurations(
        attachment.backend,
        attachment.profiler,
        configurations,
        seconds=seconds,
        repeats=rounds,
        restore=attachment.restore,
    )
    for configuration, outcome in turns:
        assert isinstance(outcome, Measurement), outcome
        p95.setdefault(configuration, []).append(outcome.latency_p95)
    return p95


def measure_beside_best(
    attachment: Attachment,
    grid: Sequence[Configuration],
    held: Sequence[Configuration],
    *,
    seconds: float,
    rounds: int,
) -> dict[Configuration, list[float]]:
    """Return the p95 in each round, s, of the best configuration, which comes first, and of those held.

    Other rounds choose the best than those returned: the least of many noisy medians looks better than it is.
    """
    measure = partial(measure_in_turns, attachment, seconds=seconds)
    found = measure(list(dict.fromkeys([*grid, *held])), rounds=min(CHOOSING, rounds))
    best = min(found, key=lambda one: median(found[one]))
    return measure(list(dict.fromkeys([best, *held])), rounds=rounds)
