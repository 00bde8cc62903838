"""From a live server to a policy: measure a model of it, and learn in simulation what it will need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.agents.load_levels import LoadLevels
from tuner.control.drive.sweep import measure_configurations
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement

if TYPE_CHECKING:
    from tuner.agents.rrl import RRL
    from tuner.envs.simulator.models import AnyModel
    from tuner.envs.simulator.server import ServerModel
    from tuner.objective import Objective
    from tuner.profiler.attachment import Attachment

__all__ = ["measure_model", "measure_server_model", "train_in_simulation"]

BATCH_THREADS = "batch_threads"
TELLING: tuple[dict[str, float], ...] = (
    {},
    {"max_batch_size": 1, "max_queue_delay": 0.0, "instances": 2},
    {"max_batch_size": 8, "max_queue_delay": 0.0, "batch_timeout": 0.0, "instances": 1},
    {"max_batch_size": 16, "max_queue_delay": 0.02, "batch_timeout": 0.02, "instances": 1},
    {"max_batch_size": 16, "max_queue_delay": 0.005, "batch_timeout": 0.005, "instances": 2},
    {"max_batch_size": 8, "max_queue_delay": 0.0, "batch_timeout": 0.0, "instances": 2},
)
"""Changes of the present configuration that show most about a server that batches."""
BATCHED = 4
"""So many of them, at the end, make batches."""
TELLING_PARALLELISM = ((1, 1, 1), (2, 1, 4), (2, 3, 1), (4, 2, 4), (3, 2, 8), (6, 1, 2), (8, 4, 4))
"""Requests, operations and threads at once that show most about a server's parallelism."""
TELLING_BATCHES = ((1, 0.0, 1), (8, 0.0, 1), (8, 0.01, 2), (16, 0.025, 4), (50, 0.04, 3), (50, 0.0, 8))
"""Batch sizes, timeouts and threads that show most about batching."""


def measure_server_model(
    attachment: Attachment, window: float, *, rates: Sequence[float] = (), rounds: int = 1
) -> tuple[ServerModel, list[Measurement]]:
    """Measure the configurations that show most about a server, and fit a model of it.

    One load shows little: large batches form only under a higher one, and how instances get in each other's
    way only while they are all busy. The machine's speed drifts from minute to minute: several rounds show
    more of that than longer windows do.

    Args:
        attachment: The server.
        window: Length of a window, s.
        rates: Loads of our own, requests/s, the lowest first; empty for the one that is there. Above the
            first, only configurations that make batches are measured: others might not bear it.
        rounds: How often everything is measured.

    Returns:
        The model, and the windows it was fitted to.

    Raises:
        InvalidInput: No window could be used, or there is no load of our own whose rate could be changed.
    """
    from tuner.envs.simulator.calibration import calibrate as fit
    from tuner.envs.simulator.server import ServerModel
    from tuner.envs.twin import as_simulated

    cores = attachment.host.cores
    base = ServerModel()
    if "batch_timeout" in attachment.space.names:
        base = base.replace(closing=0.0)  # TensorFlow Serving's batches take more until they are executed
    telling = _telling(attachment)
    windows = [
        replace(m, configuration=as_simulated(m.configuration, cores))
        for _ in range(rounds)
        for number in _loads(attachment, rates)
        for m in _measure(attachment, telling if number == 0 else telling[-BATCHED:], window)
    ]
    return fit(windows, cores=cores, base=base), windows


def _loads(attachment: Attachment, rates: Sequence[float]) -> Iterator[int]:
    """Offer one load after the other and yield its number; the first is offered again at the end."""
    if not rates:
        yield 0
        return
    try:
        for number, rate in enumerate(rates):
            attachment.set_rate(rate)
            yield number
    finally:
        attachment.set_rate(rates[0])


def _telling(attachment: Attachment) -> Sequence[Mapping[str, float]]:
    """What is changed to learn about a server that batches, the batching ones last."""
    if "batch_timeout" in attachment.space.names:
        # TensorFlow Serving runs unbatched requests all at once, which tells nothing about one of them.
        return ({"max_batch_size": 2, "batch_timeout": 0.0}, *TELLING[-BATCHED:])
    return TELLING


def measure_model(
    attachment: Attachment, window: float, *, rates: Sequence[float] = ()
) -> tuple[AnyModel, list[Measurement]]:
    """Measure a server of any kind that can be simulated, and fit a model of it.

    Which kind it is, its knobs tell: those of operations are a TensorFlow Serving on a CPU, a batch timeout
    and batch threads one that batches on a GPU, anything else is taken for a Triton.

    Args:
        attachment: The server.
        window: Length of a window, s.
        rates: Loads of our own, requests/s, the lowest first; empty for the one that is there.

    Returns:
        The model, and the windows it was fitted to.
    """
    knobs = set(attachment.space.names)
    if {"inter_op", "intra_op"} <= knobs:
        return _measure_cpu(attachment, window, rates)
    if {"max_batch_size", "batch_timeout", "batch_threads"} <= knobs:
        return _measure_gpu(attachment, window, rates)
    return measure_server_model(attachment, window, rates=rates)


def _measure_cpu(
    attachment: Attachment, window: float, rates: Sequence[float]
) -> tuple[AnyModel, list[Measurement]]:
    from tuner.envs.simulator.tfserving_calibration import fit_tfserving
    from tuner.envs.simulator.tfserving_cpu import INTER_OP, INTRA_OP, REQUEST_PARALLELISM, TFServingCPU

    cores = round(attachment.host.cores)
    parallel = REQUEST_PARALLELISM if REQUEST_PARALLELISM in attachment.space.names else BATCH_THREADS
    telling = [
        {parallel: requests, INTER_OP: inter, INTRA_OP: intra, "max_batch_size": 1}
        for requests, inter, intra in TELLING_PARALLELISM
    ]
    windows = [m for _ in _loads(attachment, rates) for m in _measure(attachment, telling, window)]
    named = [
        replace(m, configuration=_renamed(m.configuration, parallel, REQUEST_PARALLELISM)) for m in windows
    ]
    base = TFServingCPU(cores=cores, auto=cores, name=attachment.backend.describe().model)
    return fit_tfserving(named, base), windows


def _measure_gpu(
    attachment: Attachment, window: float, rates: Sequence[float]
) -> tuple[AnyModel, list[Measurement]]:
    from tuner.envs.simulator.tfserving_calibration import fit_tfserving
    from tuner.envs.simulator.tfserving_gpu import MAX_BATCH, TIMEOUT, TFServingGPU

    telling = [
        {MAX_BATCH: batch, TIMEOUT: timeout, BATCH_THREADS: threads}
        for batch, timeout, threads in TELLING_BATCHES
    ]
    windows = [m for _ in _loads(attachment, rates) for m in _measure(attachment, telling, window)]
    cores = attachment.host.cores
    base = TFServingGPU(cores=cores, auto=round(cores), name=attachment.backend.describe().model)
    return fit_tfserving(windows, base), windows


def _measure(
    attachment: Attachment, telling: Sequence[Mapping[str, float]], window: float
) -> list[Measurement]:
    """Measure configurations that differ from the present one in some knobs, as far as there are these."""
    space = attachment.space
    present = space.nearest(attachment.backend.current())
    wanted = [
        space.nearest(present.replace(**{name: v for name, v in change.items() if name in space.names}))
        for change in telling
    ]
    measured = measure_configurations(
        attachment.backend,
        attachment.profiler,
        list(dict.fromkeys(wanted)),
        seconds=window,
        restore=attachment.restore,
    )
    return [m for _, m in measured if isinstance(m, Measurement)]


def _renamed(configuration: Configuration, old: str, new: str) -> Configuration:
    """Return a configuration in which one knob has another name."""
    return Configuration({new if name == old else name: value for name, value in configuration.items()})


def train_in_simulation(
    model: ServerModel,
    objective: Objective,
    *,
    rates: Sequence[float],
    windows: int = 60,
    window: float = 20.0,
    space: KnobSpace,
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> RRL:
    """Train RRL on a simulated twin of a live server, one load after the other.

    Args:
        model: The simulated server.
        objective: What is minimised.
        rates: Loads, requests/s.
        windows: Windows per load.
        window: Length of a window, virtual s. Long ones are cheap here and less noisy than live ones.
        space: The live server's knobs.
        seed: Of arrivals, noise and exploration.
        progress: Called after each window.
    """
    from tuner.agents.rrl import RRL
    from tuner.agents.training import learn
    from tuner.envs.twin import twin_env

    agent: RRL | None = None
    for number, rate in enumerate(rates):
        environment = twin_env(
            model,
            space,
            objective,
            rate=rate,
            window=window,
            episode_windows=windows,
            levels=LoadLevels(),
        )
        if agent is None:
            agent = RRL(space, seed=seed, synchronous=True)
        learn(environment, agent, windows, seed=seed + number, progress=progress)
        environment.close()
    assert agent is not None, "at least one rate is trained"
    agent.transfer()  # a single real window outweighs what was simulated
    return agent
