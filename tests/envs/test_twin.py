"""A live server's knobs on the simulated batcher."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from tuner.adapters.tfserving.knobs import knob_space as tfserving_space
from tuner.agents.load_levels import LoadLevels
from tuner.envs.simulator.server import ServerModel
from tuner.envs.twin import as_simulated, missing_knob, shown, twin_env
from tuner.knobs import Configuration
from tuner.objective import Objective, Slo
from tuner.testing.environment import EnvironmentContract

SPACE = tfserving_space(
    {
        "max_batch_size": (1.0, 4.0, 16.0),
        "batch_timeout": (0.0, 0.005),
        "max_enqueued_batches": (10.0, 100.0),
    },
    versions=True,
    restart=False,
    limit=8192,
    rows=1,
    cores=2,
)
OBJECTIVE = Objective(slo=Slo(statistic="p95", latency=0.030), cores=2.0)


def make():
    return twin_env(
        ServerModel(), SPACE, OBJECTIVE, rate=150.0, window=2.0, episode_windows=4, levels=LoadLevels()
    )


class TestContract(EnvironmentContract):
    """It is an environment like the others."""

    @pytest.fixture
    def env(self):
        env = make()
        yield gym.wrappers.TimeLimit(env, 50)
        env.close()


@pytest.mark.parametrize(
    ("live", "simulated"),
    [
        ({"max_queue_delay": 0.002, "instances": 3}, {"max_queue_delay": 0.002, "instances": 3}),
        ({"batch_timeout": 0.002}, {"max_queue_delay": 0.002, "instances": 2}),
        ({"batch_timeout": 0.0, "batch_threads": 4}, {"max_queue_delay": 0.0, "instances": 4}),
        ({"batch_timeout": 0.0, "batch_threads": 0}, {"max_queue_delay": 0.0, "instances": 2}),
    ],
)
def test_names_of_both_servers(live, simulated):
    """The same batcher under different names, on a machine of two cores."""
    found = as_simulated(Configuration(max_batch_size=8, **live), 2.0)

    assert found == Configuration(max_batch_size=8, **simulated)


def test_which_servers_have_a_twin():
    """Those whose batcher can be turned."""
    assert missing_knob(("max_batch_size", "batch_timeout")) is None
    assert missing_knob(("max_batch_size", "max_queue_delay", "instances")) is None
    assert missing_knob(("max_batch_size", "max_queue_delay")) == "instances"
    assert missing_knob(("inter_op", "intra_op")) == "max_batch_size"
    assert shown(SPACE.names) == ["max_batch_size", "batch_timeout"]


def test_windows_have_the_servers_own_names():
    """What an agent learns is about the live server's configurations; idle knobs read as they do there."""
    env = make()
    env.reset(seed=1)
    _, _, _, _, info = env.step(
        np.int64(SPACE.encode(Configuration(max_batch_size=16, batch_timeout=0.005, max_enqueued_batches=10)))
    )

    assert info["configuration"]["batch_timeout"] == 0.005
    assert info["measurement"].batch_mean > 1.2
    _, _, _, _, info = env.step(np.int64(SPACE.encode(SPACE.default.replace(batch_timeout=0.005))))
    assert info["configuration"] == SPACE.effective(SPACE.default)
    env.close()
