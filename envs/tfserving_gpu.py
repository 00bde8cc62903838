"""``tuner/TFServingGPU-v0``: a simulated TensorFlow Serving on a GPU, with the knobs of its batching."""

from __future__ import annotations

from typing import Any

from tuner.envs.batched_env import BatchedEnv, batched_env, batched_vector_env
from tuner.envs.making import makes_environments
from tuner.envs.serving import Levels
from tuner.envs.simulator.models import server_of
from tuner.envs.simulator.tfserving_gpu import GPU_MODELS, TFServingGPU
from tuner.envs.vector import ServingVectorEnv
from tuner.objective import Objective, parse_slo
from tuner.option import keywords
from tuner.setting import SIMULATED, Setting

__all__ = ["TFServingGPUEnv", "tfserving_gpu", "tfserving_gpu_vector"]


class TFServingGPUEnv(BatchedEnv):
    """A simulated TensorFlow Serving on one GPU; an agent sets its batching between windows.

    Everything is simulated: :mod:`tuner.envs.simulator.tfserving_gpu` says what is modelled, and that its
    constants are chosen, not measured.

    ## Action
    ``Discrete(1331)``: the number of the configuration for the next window.

    | knob | meaning | values |
    |---|---|---|
    | max_batch_size | requests executed together at most | 1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 50 |
    | batch_timeout | how long the first request of a batch waits for others | 0, 5, .. 50 ms |
    | batch_threads | batches executed at once | 0..10; 0: 20, one for each core that the machine shows |

    With batches of 1 the timeout has no effect. Every change restarts the process.

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


class ObservedGPUEnv(TFServingGPUEnv):
    """The same with the use of the GPU as entry 8 of the observation, which then has 12 numbers."""

    observes_gpu = True


OWN = Setting(objective=Objective(slo=parse_slo("p95=520ms")))
"""The setting where the caller gives none."""


@makes_environments
@keywords(OWN, *SIMULATED)
def tfserving_gpu(
    setting: Setting,
    *,
    model: str = "inception",
    observe_gpu: bool = False,
    episode_windows: int = 50,
    levels: Levels | None = None,
) -> BatchedEnv:
    """Make the environment.

    Args:
        setting: What is simulated and minimised; or its parts by keyword (:data:`~tuner.setting.SIMULATED`):
            ``server`` may be a model of your own, such as `tuner calibrate` writes. By default ``rate`` is
            the model's, ``workload`` constant, and a ``window`` as long as 1,000 requests take at that rate.
            ``objective`` may be ``latency``, ``strict``, ``cpu`` or ``gpu``.
        model: ``inception``, ``deepspeech``; unless the setting has a server.
        observe_gpu: Whether the use of the GPU is the observation's entry 8.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
    """
    chosen = server_of(setting.server, TFServingGPU, GPU_MODELS, model)
    kind = ObservedGPUEnv if observe_gpu else TFServingGPUEnv
    return batched_env(kind, chosen, setting, episode_windows=episode_windows, levels=levels)


@makes_environments
def tfserving_gpu_vector(*, num_envs: int, **arguments: Any) -> ServingVectorEnv:
    """Make the vector form; the other arguments are those of :func:`tfserving_gpu`."""
    return batched_vector_env(tfserving_gpu(**arguments), num_envs)
