"""A live server's knobs on the simulated batcher."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest

from tuner.adapters.tfserving.knobs import knob_space as tfserving_space
from tuner.agents.load_levels import LoadLevels
from tuner.envs.serving import ServingEnv
from tuner.envs.simulator.server import ServerModel
from tuner.envs.twin import as_simulated, twin_env
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, Knob, KnobSpace, Role
from tuner.objective import Objective, Slo
from tuner.scheduling.knobs import scheduler_space
from tuner.testing.environment import EnvironmentContract

SPACE = tfserving_space(
    {
        "max_batch_size": (1.0, 4.0, 16.0),
        "batch_timeout": (0.0, 0.005),
        "max_enqueued_batches": (10.0, 100.0),
    },
    {},
    versions=True,
    restart=False,
    limit=8192,
    rows=1,
    cores=2,
)
OBJECTIVE = Objective(slo=Slo(statistic="p95", latency=0.030), cores=2.0)


def make() -> ServingEnv:
    return twin_env(
        ServerModel(), SPACE, OBJECTIVE, rate=150.0, window=2.0, episode_windows=4, levels=LoadLevels()
    )


class TestContract(EnvironmentContract):
    """It is an environment like the others."""

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        env = make()
        yield gym.wrappers.TimeLimit(env, 50)
        env.close()


def space_of(*roles: Role, fixed: dict[Role, float] | None = None) -> KnobSpace:
    """A server whose knobs are called after their roles, and one knob without a role."""
    knobs = [Knob(name=role.value, grid=(0, 1, 8), default=1, role=role) for role in roles]
    return KnobSpace([*knobs, Knob(name="more", grid=(1,), default=1)], fixed=fixed)


BATCHER = space_of(Role.BATCH, Role.DELAY, Role.PARALLELISM)
BY_ITSELF = space_of(Role.BATCH, Role.DELAY, fixed={Role.PARALLELISM: 0.0})


@pytest.mark.parametrize(
    ("space", "live", "simulated"),
    [
        (BATCHER, {"delay": 0.002, "parallelism": 3}, {"max_queue_delay": 0.002, "instances": 3}),
        (BATCHER, {"delay": 0.0, "parallelism": 0}, {"max_queue_delay": 0.0, "instances": 2}),
        (BY_ITSELF, {"delay": 0.002}, {"max_queue_delay": 0.002, "instances": 2}),
        (BY_ITSELF, {"delay": 80.0}, {"max_queue_delay": 60.0, "instances": 2}),
        (space_of(Role.BATCH), {}, {"max_queue_delay": 0.0, "instances": 1}),
        (BATCHER, {"delay": 0.0, "parallelism": 100}, {"max_queue_delay": 0.0, "instances": 64}),
    ],
)
def test_roles_become_the_simulated_knobs(
    space: KnobSpace, live: dict[str, float], simulated: dict[str, float]
) -> None:
    """The same batcher under different names, on a machine of two cores."""
    found = as_simulated(space, Configuration(batch=8, more=1, **live), 2.0)

    assert found == Configuration(max_batch_size=8, **simulated)


def test_a_server_that_does_not_batch_cannot_be_simulated() -> None:
    """Its knobs are named."""
    with pytest.raises(InvalidInput, match=r"no knob limits its batches.*parallelism, more"):
        as_simulated(space_of(Role.PARALLELISM), Configuration(parallelism=1, more=1), 2.0)


def test_a_batch_limit_that_is_left_to_the_server_cannot_be_simulated() -> None:
    """A dispatcher's `batch_cap` of 0: the simulation of batches of no request never ended."""
    knobs = scheduler_space()

    with pytest.raises(InvalidInput, match=r"batch_cap=0 leaves the limit .*; .* --knob batch_cap=1,4,16"):
        as_simulated(knobs, knobs.default, 2.0)

    assert as_simulated(knobs, knobs.default.replace(batch_cap=4.0), 2.0)["max_batch_size"] == 4.0


def test_windows_have_the_servers_own_names() -> None:
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


def test_more_instances_than_cores_are_simulated() -> None:
    """As many as a live server takes: the machine's two cores do not limit them."""
    knobs = [
        Knob(name="batch", grid=(4,), default=4, role=Role.BATCH),
        Knob(name="instances", grid=(1, 64), default=1, role=Role.PARALLELISM),
    ]
    env = twin_env(ServerModel(), KnobSpace(knobs), OBJECTIVE, rate=50.0, window=1.0, episode_windows=2)
    env.reset(seed=1)

    _, _, _, _, info = env.step(np.int64(1))

    assert info["configuration"]["instances"] == 64
    assert info["measurement"].requests > 0
    env.close()
