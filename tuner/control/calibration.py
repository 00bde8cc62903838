"""From a live server to a policy: measure a model of it, and learn in simulation what it will need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.agents.load_levels import LoadLevels
from tuner.control.sweep import measure_configurations
from tuner.measurement import Measurement

if TYPE_CHECKING:
    from tuner.agents.rrl import RRL
    from tuner.envs.simulator.server import ServerModel
    from tuner.objective import Objective
    from tuner.profiler.attachment import Attachment

__all__ = ["measure_server_model", "train_in_simulation"]


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
    from tuner.agents.rrl import RRL
    from tuner.agents.training import learn

    agent: RRL | None = None
    for number, rate in enumerate(rates):
        environment = gymnasium.make(
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
        if agent is None:
            agent = RRL(environment.get_wrapper_attr("space"), seed=seed, synchronous=True)
        learn(environment, agent, windows, seed=seed + number, progress=progress)
        environment.close()
    assert agent is not None, "at least one rate is trained"
    agent.transfer()  # a single real window outweighs what was simulated
    return agent
