"""``tuner/TFServingCPU-v0``: a simulated TensorFlow Serving on a CPU, with RRL's three knobs."""

from __future__ import annotations

from typing import Any

from tuner.envs.batched_env import BatchedEnv, batched_env, batched_vector_env
from tuner.envs.making import makes_environments
from tuner.envs.serving import Levels
from tuner.envs.simulator.models import server_of
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS, TFServingCPU
from tuner.envs.vector import ServingVectorEnv
from tuner.objective import Objective, parse_slo
from tuner.option import keywords
from tuner.setting import SIMULATED, Setting

__all__ = ["TFServingCPUEnv", "tfserving_cpu", "tfserving_cpu_vector"]


class TFServingCPUEnv(BatchedEnv):
    """A simulated TensorFlow Serving on ten cores; an agent sets its parallelism between windows.

    Everything is simulated: :mod:`tuner.envs.simulator.tfserving_cpu` says what is modelled, and that its
    constants are chosen, not measured.

    ## Action
    ``Discrete(1331)``: the number of the configuration for the next window.

    | knob | meaning | values |
    |---|---|---|
    | request_parallelism | requests executed at once | 0..10 |
    | inter_op | operations of one request executed at once | 0..10 |
    | intra_op | threads that one operation is split among | 0..10 |

    0 means one for each core that the machine shows (20: two threads for each of the ten). Every change
    restarts the process.

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
    window's number alone, and not on earlier configurations.

    ## Start
    (5, 5, 5), where RRL's authors begin, or the configuration whose number is ``options["configuration"]``.
    The workload's rates are drawn for the whole episode; one window at the first rate is measured for the
    first observation.

    ## End
    Never terminated. Truncated after ``episode_windows`` steps.

    ## Version history
    v0: first.
    """


OWN = Setting(objective=Objective(slo=parse_slo("p95=550ms")))
"""The setting where the caller gives none."""


@makes_environments
@keywords(OWN, *SIMULATED)
def tfserving_cpu(
    setting: Setting, *, model: str = "inception", episode_windows: int = 50, levels: Levels | None = None
) -> BatchedEnv:
    """Make the environment.

    Args:
        setting: What is simulated and minimised; or its parts by keyword (:data:`~tuner.setting.SIMULATED`):
            ``server`` may be a model of your own, such as `tuner calibrate` writes. By default ``rate`` is
            the model's, ``workload`` constant, and a ``window`` as long as 1,000 requests take at that rate.
            ``objective`` may be ``latency``, ``strict`` or ``cpu``.
        model: ``inception``, ``resnet``, ``deepspeech``; unless the setting has a server.
        episode_windows: Steps per episode.
        levels: Names load levels for ``info["level"]``.

    Raises:
        InvalidInput: An argument is unusable.
    """
    chosen = server_of(setting.server, TFServingCPU, CPU_MODELS, model)
    return batched_env(TFServingCPUEnv, chosen, setting, episode_windows=episode_windows, levels=levels)


@makes_environments
def tfserving_cpu_vector(*, num_envs: int, **arguments: Any) -> ServingVectorEnv:
    """Make the vector form; the other arguments are those of :func:`tfserving_cpu`."""
    return batched_vector_env(tfserving_cpu(**arguments), num_envs)
