"""``tuner/TritonCPU-v0``: a simulated Triton on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.adapters import Backend
from tuner.envs.batched_env import (
    BatchedEnv,
    batched_env,
    batched_vector_env,
    check_load,
    model_objective,
)
from tuner.envs.exact_costs import ExactCosts
from tuner.envs.making import makes_environments
from tuner.envs.serving import Levels, Plant, ServingEnv
from tuner.envs.simulator.backend import SimulatedTriton
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.batched_triton import BatchedTriton
from tuner.envs.simulator.models import server_of
from tuner.envs.simulator.server import MODELS, ServerModel
from tuner.envs.vector import ServingVectorEnv, check_count, measure_each
from tuner.errors import InvalidInput
from tuner.measurement import Measurement
from tuner.objective import Objective, parse_slo
from tuner.option import keywords
from tuner.profiler.profiler import Profiler
from tuner.setting import SIMULATED, Load, Rate, Setting, rate_range
from tuner.workload import Workload, workload
from tuner.workload.schedule import RateSchedule, draw_rate

__all__ = ["TritonCPUEnv", "triton_cpu", "triton_cpu_vector", "virtual_plant"]


class TritonCPUEnv(ServingEnv):
    """A simulated Triton on a CPU; an agent sets its batches and instances between windows.

    ## Action
    ``Discrete(size)``: the number of the configuration for the next window. The knobs are those of a live
    Triton's dynamic batcher; by default there are 72 configurations.

    | knob | values |
    |---|---|
    | max_batch_size | 1, 2, 4, 8, 16, 32 |
    | max_queue_delay | 0, 1, 2, 5, 10, 20 ms; without effect on batches of 1 |
    | instances | 1 to the number of cores |

    ## Observation and reward
    Those of :class:`~tuner.envs.serving.ServingEnv`.

    ## Step
    With ``carry_over`` one server runs through the episode, as a real one does: a change is a reload, which
    takes time and a core while the old instances go on; then a settling time passes, and the ordinary
    profiler measures ``window`` virtual seconds. What queues up in one window is still there in the next.
    Without it every window is measured on a new server after a warm-up, like those of
    ``tuner/TFServingCPU-v0``; in the vector form one compiled call measures many such servers.

    ``info["rate"]`` is the load offered at the end of the window.

    ## Start
    Virtual time 0, the default configuration or the one whose number is ``options["configuration"]``; one
    window is measured for the first observation.

    ## End
    Never terminated. Truncated after ``episode_windows`` steps.

    ## Version history
    v0: first.
    """

    knows_costs = True

    def __init__(
        self,
        model: BatchedTriton,
        load: Workload | None,
        setting: Setting,
        *,
        episode_windows: int,
        levels: Levels | None,
    ) -> None:
        shape = 1.0 if load is None else load.burstiness

        def open_plant(generator: np.random.Generator) -> Plant:
            if load is None:
                schedule, rates = _schedule(setting.load.rate or model.rate, generator), None
            else:
                schedule, rates = RateSchedule.constant(load.rate), load.rates(episode_windows, generator)
            backend = self._triton = SimulatedTriton(
                model.server,
                schedule,
                seed=int(generator.integers(2**62)),
                grids=setting.grids,
                shape=shape,
            )
            return virtual_plant(backend) if rates is None else _changing_plant(backend, rates)

        space, objective, window = model.space(setting.grids), setting.objective, setting.seconds
        super().__init__(
            open_plant, space, objective, window=window, episode_windows=episode_windows, levels=levels
        )
        simulator = BatchedSimulator(model.plans(space), model.traffic(shape))
        self._exact = ExactCosts(simulator, space, objective, window)

    def expected_costs(self, rate: float) -> np.ndarray:  # noqa: D102 - inherited
        return self._exact.at(rate)

    def _info(self, measurement: Measurement, cost: float) -> dict[str, Any]:
        return super()._info(measurement, cost) | {"rate": self._triton.rate}


OWN = Setting(objective=Objective(slo=parse_slo("p95=30ms")), window=5.0)
"""The setting where the caller gives none."""


@makes_environments
@keywords(OWN, *SIMULATED)
def triton_cpu(
    setting: Setting,
    *,
    carry_over: bool = True,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> ServingEnv:
    """Make the environment; every reset starts a new simulated server, whose seed the environment draws.

    Args:
        setting: What is simulated and minimised; or its parts by keyword (:data:`~tuner.setting.SIMULATED`):
            by default ``server`` is the demo's model and ``workload`` a constant ``rate`` of 200 requests/s.
            ``objective`` may be ``latency``, ``strict`` or ``cpu``.
        carry_over: Whether one server runs through the episode, or every window has its own.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
    """
    check_load(setting.load)
    model = BatchedTriton(server=server_of(setting.server, ServerModel, MODELS, "mlp"))
    load = setting.load.workload
    if isinstance(load, str):
        load = workload(load, setting.load.nominal or model.rate)
    if not carry_over:
        offered = load or _batched_load(setting.load.rate or model.rate)
        fixed = replace(setting, load=Load(workload=offered), window=setting.seconds)
        return batched_env(BatchedEnv, model, fixed, episode_windows=episode_windows, levels=levels)
    objective = model_objective(model, setting.objective)
    return TritonCPUEnv(
        model, load, replace(setting, objective=objective), episode_windows=episode_windows, levels=levels
    )


@makes_environments
def triton_cpu_vector(*, num_envs: int, **arguments: Any) -> ServingVectorEnv:
    """Make the vector form; the other arguments are those of :func:`triton_cpu`.

    Without ``carry_over`` one compiled call measures all servers. With it the profiler, which is Python,
    measures one after the other.
    """
    check_count(num_envs)
    first = triton_cpu(**arguments)
    if isinstance(first, BatchedEnv):
        return batched_vector_env(first, num_envs)
    return ServingVectorEnv([first, *(triton_cpu(**arguments) for _ in range(num_envs - 1))], measure_each)


def virtual_plant(world: SimulatedTriton, backend: Backend | None = None) -> Plant:
    """Measure a simulated server with the ordinary profiler, in its own time.

    Args:
        world: The simulated server.
        backend: What stands before it and is controlled instead; None if nothing does.
    """
    controlled = world if backend is None else backend
    profiler = Profiler(controlled, clock=world, host=world, clients=world)
    return Plant(backend=controlled, measure=profiler.measure, close=controlled.close)


def _changing_plant(backend: SimulatedTriton, rates: np.ndarray) -> Plant:
    """Like :func:`virtual_plant`, with a rate for every step; the reset's window has the first one, too."""
    plant = virtual_plant(backend)
    coming = iter([rates[0], *rates])

    def measure(seconds: float, settle: float) -> Measurement:
        rate = float(next(coming, rates[-1]))
        if rate != backend.rate:
            backend.set_rate(rate)
        return plant.measure(seconds, settle)

    return replace(plant, measure=measure)


@dataclass(frozen=True, kw_only=True)
class _Drawn(Workload):
    """One rate for the whole episode, at least the nominal one, log-uniform."""

    name = "drawn"
    about = "a constant rate, drawn for every episode"

    most: float = 1.0
    """The highest rate, relative to the nominal one."""

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:
        return np.full(windows, np.exp(generator.uniform(0.0, np.log(self.most))))


def _batched_load(rate: Rate) -> Workload:
    """Return the load of servers that each run for one window."""
    if isinstance(rate, RateSchedule):
        problem = "a schedule needs a server that runs through the episode"
        raise InvalidInput("rate", problem, "give a workload instead")
    low, high = rate_range(rate)
    return _Drawn(rate=low, most=high / low)


def _schedule(rate: Rate, generator: np.random.Generator) -> RateSchedule:
    if isinstance(rate, RateSchedule):
        return rate
    if isinstance(rate, tuple):
        return RateSchedule.constant(draw_rate(*rate_range(rate), generator))
    return RateSchedule.constant(rate)
