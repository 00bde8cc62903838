"""Fits a simulated server to a live one, and trains an agent in the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.agents.load_levels import LoadLevels
from tuner.control.drive.sweep import measure_configurations
from tuner.errors import InvalidInput
from tuner.knobs import KnobSpace
from tuner.measurement import Measurement

if TYPE_CHECKING:
    from tuner.agents.rrl import RRL
    from tuner.envs.simulator.models import AnyModel
    from tuner.envs.simulator.server import ServerModel
    from tuner.objective import Objective
    from tuner.profiler.attachment import Attachment

__all__ = ["measure_model", "measure_server_model", "train_in_simulation"]

TRAINING_WINDOW = 20.0
"""Length of a window of training, virtual s. Long ones are cheap here and less noisy than live ones."""


def measure_server_model(
    attachment: Attachment, window: float, *, rates: Sequence[float] = (), rounds: int = 1
) -> tuple[ServerModel, list[Measurement]]:
    """Measure the configurations that show most about a server, and fit a model of it.

    One load shows little: large batches form only under a high load, and only busy instances slow each other
    down. The machine's speed drifts from minute to minute: several rounds show more of that than longer
    windows do.

    Args:
        attachment: The server.
        window: Length of a window, s.
        rates: Loads of our own, requests/s, the lowest first; empty for the load that is there. Under all but
            the first, only configurations that make batches are measured: others might be overloaded.
        rounds: How often everything is measured.

    Returns:
        The model, and the windows it was fitted to.

    Raises:
        InvalidInput: No window could be used, or there is no load of our own whose rate could be changed.
    """
    windows = _measure_batcher(attachment, window, rates, rounds)
    return _fit_batcher(attachment, windows), windows


def _measure_batcher(
    attachment: Attachment, window: float, rates: Sequence[float], rounds: int = 1
) -> list[Measurement]:
    """Measure what shows most about a server that batches, in terms of the simulated one's knobs."""
    from tuner.envs.simulator.models import BATCHED, probes_of
    from tuner.envs.simulator.server import ServerModel
    from tuner.envs.twin import as_simulated

    space, cores = attachment.space, attachment.host.cores
    probes = probes_of(space, ServerModel)
    return [
        replace(m, configuration=as_simulated(space, m.configuration, cores))
        for _ in range(rounds)
        for number in _loads(attachment, rates)
        for m in _measure(attachment, probes if number == 0 else probes[-BATCHED:], window)
    ]


def _fit_batcher(attachment: Attachment, windows: Sequence[Measurement]) -> ServerModel:
    from tuner.envs.simulator.calibration import calibrate as fit
    from tuner.envs.simulator.models import batcher_of

    return fit(windows, cores=attachment.host.cores, base=batcher_of(attachment.description))


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


def measure_model(
    attachment: Attachment, window: float, *, rates: Sequence[float] = ()
) -> tuple[AnyModel, list[Measurement]]:
    """Measure a server of any kind that can be simulated, and fit a model of it.

    Its knobs say which kind it is: see :func:`tuner.envs.simulator.models.kind_of`.

    Args:
        attachment: The server.
        window: Length of a window, s.
        rates: Loads of our own, requests/s, the lowest first; empty for the load that is there.

    Returns:
        The model, and the windows it was fitted to.

    Raises:
        InvalidInput: No window could be used, or the rate of the load cannot be changed. Where no request was
            answered at all, it names the options of ``tuner calibrate`` that help.
    """
    from tuner.envs.simulator.models import as_cpu_model, kind_of, probes_of
    from tuner.envs.simulator.server import ServerModel
    from tuner.envs.simulator.tfserving_calibration import fit_tfserving
    from tuner.envs.simulator.tfserving_cpu import TFServingCPU
    from tuner.envs.simulator.tfserving_gpu import TFServingGPU

    space, kind = attachment.space, kind_of(attachment.space)
    if kind is ServerModel:
        windows = _measure_batcher(attachment, window, rates)
        _check_answered(windows, rates)
        return _fit_batcher(attachment, windows), windows
    probes = probes_of(space, kind)
    windows = [m for _ in _loads(attachment, rates) for m in _measure(attachment, probes, window)]
    _check_answered(windows, rates)
    cores, name = attachment.host.cores, attachment.backend.describe().model
    whole = max(round(cores), 1)  # a quota may be less than half a core
    if kind is TFServingGPU:
        return fit_tfserving(windows, TFServingGPU(cores=cores, auto=whole, name=name)), windows
    named = [replace(m, configuration=as_cpu_model(space, m.configuration)) for m in windows]
    return fit_tfserving(named, TFServingCPU(cores=whole, auto=whole, name=name)), windows


def _check_answered(windows: Sequence[Measurement], rates: Sequence[float]) -> None:
    """Check that there were requests; raises InvalidInput."""
    if windows and not any(m.requests for m in windows):
        longer = "make windows longer (--seconds)"
        fix = longer if rates else f"send some (--rate), or {longer}"
        raise InvalidInput("calibration", "no request was answered in any window", fix)


def _measure(
    attachment: Attachment, probes: Sequence[Mapping[str, float]], window: float
) -> list[Measurement]:
    """Measure the present configuration with each probe, whose changes of other knobs are left out."""
    space = attachment.space
    present = space.nearest(attachment.backend.current())
    wanted = [
        space.nearest(present.replace(**{name: v for name, v in change.items() if name in space.names}))
        for change in probes
    ]
    measured = measure_configurations(
        attachment.backend,
        attachment.profiler,
        list(dict.fromkeys(wanted)),
        seconds=window,
        restore=attachment.restore,
    )
    return [m for _, m in measured if isinstance(m, Measurement)]


def train_in_simulation(
    model: ServerModel,
    objective: Objective,
    *,
    rates: Sequence[float],
    windows: int = 60,
    space: KnobSpace,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> RRL:
    """Train RRL on a simulated twin of a live server, one load after the other.

    Args:
        model: The simulated server.
        objective: What is minimised.
        rates: Loads, requests/s.
        windows: Windows per load.
        space: The live server's knobs.
        seed: Of arrivals, noise and exploration.
        progress: Called after each window.
    """
    from tuner.agents.rrl import RRL
    from tuner.agents.training import Callbacks, learn
    from tuner.envs.twin import twin_env

    assert rates, "at least one rate is trained"
    agent = RRL(space, objective=objective, seed=seed, synchronous=True)
    for number, rate in enumerate(rates):
        environment = twin_env(
            model,
            space,
            objective,
            rate=rate,
            window=TRAINING_WINDOW,
            episode_windows=windows,
            levels=LoadLevels(),
        )
        learn(environment, agent, windows, seed=seed + number, callbacks=Callbacks(progress=progress))
        environment.close()
    agent.transfer()  # a single real window outweighs what was simulated
    return agent
