"""``tuner/TFServingCPU-v0``: a simulated TensorFlow Serving on a CPU, with RRL's three knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.envs.batched_env import BatchedEnv, batched_env, batched_vector_env, named_model
from tuner.envs.serving import Levels
from tuner.envs.simulator.models import expect_kind
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS, TFServingCPU
from tuner.envs.vector import ServingVectorEnv
from tuner.objective import Slo
from tuner.workload import Workload

__all__ = ["TFServingCPUEnv", "tfserving_cpu", "tfserving_cpu_vector"]


class TFServingCPUEnv(BatchedEnv):
    """A simulated TensorFlow Serving on ten cores whose parallelism is set between windows.

    Everything is simulated: :mod:`tuner.envs.simulator.tfserving_cpu` says what is modelled, and that its
    constants are chosen, not measured.

    ## Action
    ``Discrete(1331)``: the number of the configuration for the next window.

    | knob | meaning | values |
    |---|---|---|
    | request_parallelism | requests executed at once | 0..10 |
    | inter_op | operations of one request executed at once | 0..10 |
    | intra_op | threads that one operation is split among | 0..10 |

    0 means as many as the machine shows cores (20: two threads for each of the ten). Every change starts the
    process anew.

    ## Observation
    That of :class:`~tuner.envs.serving.ServingEnv`, 11 numbers. ``burstiness`` is always -1 (not measured),
    ``batch`` always 0, ``foreign`` always 0.

    ## Reward
    ``objective.reward`` of the window, at least -50.

    ## Step
    Start the server with the configuration under the load of this window; after a warm-up measure ``window``
    virtual seconds. Requests that are left at the end are answered too, so overload shows as latency, not as
    failures. ``info`` is that of :class:`~tuner.envs.serving.ServingEnv` and ``rate``, the load offered in
    the window just measured. A window depends on the configuration, the load, the episode's seed and the
    window's number alone: what was tried before has no part in it.

    ## Start
    (5, 5, 5), where the authors begin, or the configuration whose number is ``options["configuration"]``. The
    workload's rates are drawn for the whole episode; one window at the first rate is measured for the first
    observation.

    ## End
    Never terminated. Truncated after ``episode_windows`` steps.

    ## Version history
    v0: first.
    """


def tfserving_cpu(
    *,
    model: str = "inception",
    server: TFServingCPU | None = None,
    workload: Workload | str | None = None,
    rate: float | None = None,
    slo: str | Slo = "p95=550ms",
    objective: str = "latency",
    change_cost: float = 0.0,
    grids: Mapping[str, tuple[float, ...]] | None = None,
    window: float | None = None,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> BatchedEnv:
    """Make the environment.

    Args:
        model: ``inception``, ``resnet``, ``deepspeech``.
        server: A model of your own instead, such as `tuner calibrate` writes.
        workload: The load, or its spec at the nominal rate, such as ``dynamic``; None: constant.
        rate: The nominal rate, requests/s; None: the model's.
        slo: Such as ``p95=550ms``.
        objective: ``latency``, ``strict`` or ``cpu``.
        change_cost: Weight of what a change of the configuration costs; 0: nothing.
        grids: Grids that replace 0..10, by knob name.
        window: Length of a window, virtual seconds; None: 1,000 requests at the nominal rate.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
    """
    if server is not None:
        expect_kind(server, TFServingCPU)
    return batched_env(
        TFServingCPUEnv,
        server or named_model(model, CPU_MODELS),
        load=workload,
        rate=rate,
        slo=slo,
        objective=objective,
        change_cost=change_cost,
        grids=grids,
        window=window,
        episode_windows=episode_windows,
        levels=levels,
    )


def tfserving_cpu_vector(*, num_envs: int, **arguments: Any) -> ServingVectorEnv:
    """Make the vector form; the other arguments are those of :func:`tfserving_cpu`."""
    return batched_vector_env(tfserving_cpu(**arguments), num_envs)
