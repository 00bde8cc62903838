"""From a live server to a policy: measure a model of it, and learn in simulation what it will need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.agents.load_levels import LoadLevels
from tuner.control.sweep import measure_configurations
from tuner.measurement import Measurement

if TYPE_CHECKING:
    import gymnasium as gym

    from tuner.agents.rrl import RRL
    from tuner.envs.simulator.cluster.scenario import Scenario
    from tuner.envs.simulator.server import ServerModel
    from tuner.objective import Objective
    from tuner.profiler.attachment import Attachment

__all__ = ["measure_server_model", "train_in_cluster", "train_in_simulation"]


def measure_server_model(attachment: Attachment, window: float) -> tuple[ServerModel, list[Measurement]]:
    """Measure the configurations that show most about a server, and fit a model of it.

    Returns:
        The model, and the windows it was fitted to.
    """
    from tuner.envs.simulator.server import calibrate as fit

    space = attachment.space
    present = space.nearest(attachment.backend.current())
    telling = [
        present,
        space.nearest(present.replace(max_batch_size=8, max_queue_delay=0.0, instances=1)),
        space.nearest(present.replace(max_batch_size=16, max_queue_delay=0.02, instances=1)),
        space.nearest(present.replace(max_batch_size=16, max_queue_delay=0.005, instances=2)),
    ]
    measured = measure_configurations(
        attachment.backend,
        attachment.profiler,
        list(dict.fromkeys(telling)),
        seconds=window,
        restore=attachment.restore,
    )
    windows = [m for _, m in measured if isinstance(m, Measurement)]
    return fit(windows, cores=attachment.host.cores), windows


def train_in_simulation(
    model: ServerModel,
    objective: Objective,
    *,
    rates: Sequence[float],
    windows: int = 60,
    window: float = 20.0,
    grids: Mapping[str, tuple[float, ...]],
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> RRL:
    """Train RRL on a simulated server, one load after the other.

    Args:
        model: The simulated server.
        objective: What is minimised.
        rates: Loads, requests/s.
        windows: Windows per load.
        window: Length of a window, virtual s. Long ones are cheap here and less noisy than live ones.
        grids: Grids that replace the defaults, by knob name; give a live server's to carry the policy over.
        seed: Of arrivals, noise and exploration.
        progress: Called after each window.
    """
    import gymnasium

    import tuner.envs  # noqa: F401  (registers the environments)

    def make(rate: float) -> gym.Env[Any, Any]:
        return gymnasium.make(
            "tuner/TritonCPU-v0",
            server=model,
            rate=rate,
            slo=f"{objective.slo.statistic}={objective.slo.latency}s",
            objective=objective.goal,
            grids=grids,
            window=window,
            episode_windows=windows,
            levels=LoadLevels(),
        )

    return _train(make, rates, windows=windows, seed=seed, progress=progress)


def train_in_cluster(
    scenario: Scenario | None,
    *,
    rates: Sequence[float],
    goal: str = "gpu",
    windows: int = 60,
    window: float = 2.0,
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> RRL:
    """Train RRL on the central scheduler of a simulated cluster, one load after the other.

    Args:
        scenario: The cluster; the environment's example if None.
        rates: Loads, requests/s of all sessions.
        goal: ``gpu`` or ``latency``; what is least while at most 1 % are late or dropped.
        windows: Windows per load.
        window: Length of a window, virtual s.
        seed: Of arrivals and exploration.
        progress: Called after each window.
    """
    import gymnasium

    import tuner.envs  # noqa: F401  (registers the environments)

    def make(rate: float) -> gym.Env[Any, Any]:
        return gymnasium.make(
            "tuner/Cluster-v0",
            scenario=scenario,
            rate=rate,
            objective=goal,
            window=window,
            episode_windows=windows,
            levels=LoadLevels(),
        )

    return _train(make, rates, windows=windows, seed=seed, progress=progress)


def _train(
    make: Callable[[float], gym.Env[Any, Any]],
    rates: Sequence[float],
    *,
    windows: int,
    seed: int,
    progress: Callable[[], None] | None,
) -> RRL:
    """Train one agent in an environment for each load."""
    from tuner.agents.rrl import RRL
    from tuner.agents.training import learn

    agent: RRL | None = None
    for number, rate in enumerate(rates):
        environment = make(rate)
        if agent is None:
            agent = RRL(environment.get_wrapper_attr("space"), seed=seed, synchronous=True)
        learn(environment, agent, windows, seed=seed + number, progress=progress)
        environment.close()
    assert agent is not None, "at least one rate is trained"
    agent.transfer()  # a single real window outweighs what was simulated
    return agent
