"""``tuner/Cluster-v0``: the central batch scheduler of a simulated cluster, whose knobs an agent turns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.cluster.scenario import Network, Scenario, Session
from tuner.cluster.scenario.session import FASTEST
from tuner.envs.cluster_backend import SimulatedCluster, check_scenario, last_request
from tuner.envs.making import makes_environments
from tuner.envs.serving import UNKNOWN, Levels, Plant, ServingEnv
from tuner.envs.vector import MeasureInThreads, ServingVectorEnv, check_count
from tuner.errors import InvalidInput, check_choice
from tuner.knobs import KnobSpace
from tuner.measurement import Measurement
from tuner.objective import BadRateObjective, Slo
from tuner.scheduling.knobs import check_space, scheduler_space
from tuner.setting import rate_range
from tuner.workload.schedule import draw_rate

__all__ = ["EXAMPLE", "ClusterEnv", "cluster", "cluster_vector"]

BUSY, BAD = 5, 6
"""Places in the observation of what a cluster has instead of cores."""
EXAMPLE = Scenario(
    policy="symphony",
    accelerators=8,
    rate=4_000.0,
    sessions=(Session(name="resnet50", alpha_ms=1.053, beta_ms=5.072, slo_ms=25.0, copies=4),),
    network=Network(control_ms=0.1, data_ms_per_request=0.05, response_ms=2.0),
)
"""Four models like ResNet50 on a GTX 1080Ti (Symphony, Table 4) on 8 accelerators."""


class ClusterEnv(ServingEnv):
    """The scheduler of a cluster whose knobs are turned between windows.

    ## Action
    ``Discrete(720)``: the number of the configuration for the next window. The knobs are those of
    :mod:`tuner.scheduling.knobs`; changing them costs nothing and loses no request.

    | knob | values |
    |---|---|
    | deferral | 0 (eager), 0.25, 0.5, 0.75, 1 (as long as a batch can wait) |
    | batch_cap | 0 (the session's own), 1, 2, 4, 8, 16, 32, 64 requests |
    | target_batch | 0, 1 |
    | drop_rule | 0 lazy, 1 window, 2 early |
    | dispatch_order | 0 sched_at, 1 deadline, 2 latest |

    ## Observation
    ``Box(float32)`` of the last window; values are clipped to the bounds, -1 stands for not measured.
    Latencies are those of the answered requests, good and late; where sessions have different SLOs, each is
    scaled by the first session's SLO over its own.

    | # | name | meaning | low | high |
    |---|---|---|---|---|
    | 0 | rate | log2(1 + requests/s of all sessions) | 0 | 20 |
    | 1 | latency | p95 over the SLO | 0 | 20 |
    | 2 | mean | mean latency over the SLO | 0 | 20 |
    | 3 | queue | share of the time before the execution begins | 0 | 1 |
    | 4 | batch | log2 of requests per batch | 0 | 10 |
    | 5 | busy | share of the accelerators' time in use | 0 | 1 |
    | 6 | bad | share of the requests that is late or dropped | 0 | 1 |
    | 7 | burstiness | always -1: the scheduler does not measure it | 0 | 10 |
    | 8..12 | one per knob | step on its grid, 0 the lowest, 1 the highest | 0 | 1 |

    ## Reward
    The negated cost of :class:`~tuner.objective.BadRateObjective`, at least -50. While at most 1 % of the
    requests are late or dropped the cost is the share of the accelerators' time in use (``objective="gpu"``:
    what is not used can be given back), or p95 over the SLO (``"latency"``). Beyond, it is 1 + bad rate / 1 %
    and grows with the logarithm above ten times the 1 %. A window in which nothing was asked earns 0.

    ## Step
    Change the knobs, let the longest SLO pass, measure a window of ``window`` virtual seconds. ``info`` is
    that of :class:`~tuner.envs.serving.ServingEnv`; in its measurement ``failures`` are the late and the
    dropped requests, ``requests`` those in time, ``gpu`` is the share of the accelerators' time in use.

    ## Start
    An idle cluster at virtual time 0 with a seed that the environment draws, and all knobs at their defaults
    or at the configuration whose number is ``options["configuration"]``. One window is measured for the
    first observation.

    ## End
    Never terminated. Truncated after ``episode_windows`` steps, and where the last request of the scenario's
    traces would come within the next window.

    ## Version history
    v0: first.
    """

    def end_step(  # noqa: D102 - inherited
        self, measured: Measurement
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().end_step(measured)
        backend = self.backend
        assert isinstance(backend, SimulatedCluster), backend
        over = backend.now() + backend.settle + self._window > backend.ends
        return observation, reward, terminated, truncated or over, info

    def _observe(self, m: Measurement) -> np.ndarray:
        observation = super()._observe(m)
        assert isinstance(self.objective, BadRateObjective), self.objective
        bad = self.objective.bad_rate(m)
        observation[BUSY] = m.gpu
        observation[BAD] = UNKNOWN if math.isnan(bad) else bad
        return observation


@makes_environments
def cluster(
    *,
    scenario: Scenario | None = None,
    rate: float | tuple[float, float] | None = None,
    objective: str = "gpu",
    space: KnobSpace | None = None,
    window: float = 2.0,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> ClusterEnv:
    """Make the environment.

    Args:
        scenario: The cluster and its load; :data:`EXAMPLE` if None. Its policy must be ``symphony``, whose
            other options are kept, and it must have no planner.
        rate: Requests/s of all sessions instead of the scenario's, or a range from which each episode draws
            its rate (log-uniform).
        objective: ``gpu`` or ``latency``; what is least while the bad rate is kept.
        space: Some of the knobs, or other grids.
        window: Length of a window, virtual seconds.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable, or the traces are shorter than two windows.
    """
    chosen = EXAMPLE if scenario is None else scenario
    if not isinstance(chosen, Scenario):
        raise InvalidInput("scenario", f"{chosen!r} is no `Scenario`", "make one in Python")
    check_scenario(chosen)
    check_choice("objective", objective, ("gpu", "latency"))
    rates = None if rate is None else rate_range(rate, FASTEST)
    slo = Slo(statistic="p95", latency=chosen.each_session[0].slo)
    knobs = scheduler_space() if space is None else space
    if not isinstance(knobs, KnobSpace):
        raise InvalidInput("space", f"{knobs!r} is no `KnobSpace`", "make one in Python")
    check_space(knobs)

    def open_plant(generator: np.random.Generator) -> Plant:
        seed = int(generator.integers(2**62))
        offered = chosen
        if rates is not None:
            offered = chosen.scaled(draw_rate(*rates, generator) / chosen.total_rate)
        backend = SimulatedCluster(offered.model_copy(update={"seed": seed}), knobs)
        return Plant(backend=backend, measure=backend.measure, close=backend.close)

    env = ClusterEnv(
        open_plant,
        knobs,
        BadRateObjective(slo=slo, goal=objective),
        window=window,
        episode_windows=episode_windows,
        levels=levels,
    )
    fastest = chosen if rates is None else chosen.scaled(rates[1] / chosen.total_rate)
    ends, settle = last_request(fastest), max(session.slo for session in chosen.each_session)
    if ends < 2 * (settle + window):
        problem = f"two of {window:g} s, each {settle:g} s after a change, do not fit into {ends:.4g} s"
        raise InvalidInput("window", problem, "shorten them, or give a longer trace")
    return env


@makes_environments
def cluster_vector(*, num_envs: int, **arguments: Any) -> ServingVectorEnv:
    """Make the vector form; the other arguments are those of :func:`cluster`.

    A cluster is one compiled call; the calls run side by side in threads.
    """
    check_count(num_envs)
    threads = MeasureInThreads()
    return ServingVectorEnv([cluster(**arguments) for _ in range(num_envs)], threads, threads.close)
