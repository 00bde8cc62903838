"""``tuner/TFServingGPU-v0``: a simulated TensorFlow Serving on a GPU, with the knobs of its batching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.envs.batched_env import BatchedEnv, batched_env, batched_vector_env, named_model
from tuner.envs.serving import Levels
from tuner.envs.simulator.models import expect_kind
from tuner.envs.simulator.tfserving_gpu import GPU_MODELS, TFServingGPU
from tuner.envs.vector import ServingVectorEnv
from tuner.objective import Slo
from tuner.workload import Workload

__all__ = ["TFServingGPUEnv", "tfserving_gpu", "tfserving_gpu_vector"]


class TFServingGPUEnv(BatchedEnv):
    """A simulated TensorFlow Serving on one GPU whose batching is set between windows.

    Everything is simulated: :mod:`tuner.envs.simulator.tfserving_gpu` says what is modelled, and that its
    constants are chosen, not measured.

    ## Action
    ``Discrete(1331)``: the number of the configuration for the next window.

    | knob | meaning | values |
    |---|---|---|
    | max_batch_size | requests executed together at most | 1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 50 |
    | batch_timeout | how long the first waits for others | 0, 5, .. 50 ms |
    | batch_threads | batches executed at once | 0..10; 0: 20, as many as the machine shows cores |

    With batches of 1 the timeout has no effect. Every change starts the process anew.

    ## Observation
    That of :class:`~tuner.envs.serving.ServingEnv`, 11 numbers. ``burstiness`` is always -1 (not measured),
    ``foreign`` always 0; ``cpu`` is the host's.

    ## Reward
    ``objective.reward`` of the window, at least -50.

    ## Step, start and end
    Those of :class:`~tuner.envs.tfserving_cpu.TFServingCPUEnv`; it starts at (50, 25 ms, 5). In the
    measurement ``gpu`` is the share of the GPU's time in use.

    ## Version history
    v0: first.
    """


def tfserving_gpu(
    *,
    model: str = "inception",
    server: TFServingGPU | None = None,
    workload: Workload | str | None = None,
    rate: float | None = None,
    slo: str | Slo = "p95=520ms",
    objective: str = "latency",
    change_cost: float = 0.0,
    grids: Mapping[str, tuple[float, ...]] | None = None,
    window: float | None = None,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> BatchedEnv:
    """Make the environment.

    Args:
        model: ``inception``, ``deepspeech``.
        server: A model of your own instead, such as `tuner calibrate` writes.
        workload: The load, or its spec at the nominal rate, such as ``dynamic``; None: constant.
        rate: The nominal rate, requests/s; None: the model's.
        slo: Such as ``p95=520ms``.
        objective: ``latency``, ``strict``, ``cpu`` or ``gpu``.
        change_cost: Weight of what a change of the configuration costs; 0: nothing.
        grids: Grids that replace the usual ones, by knob name.
        window: Length of a window, virtual seconds; None: 1,000 requests at the nominal rate.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
    """
    if server is not None:
        expect_kind(server, TFServingGPU)
    return batched_env(
        TFServingGPUEnv,
        server or named_model(model, GPU_MODELS),
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


def tfserving_gpu_vector(*, num_envs: int, **arguments: Any) -> ServingVectorEnv:
    """Make the vector form; the other arguments are those of :func:`tfserving_gpu`."""
    return batched_vector_env(tfserving_gpu(**arguments), num_envs)
