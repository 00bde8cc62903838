"""The environment over the central scheduler, and the backend behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from tuner.agents.load_levels import LoadLevels
from tuner.agents.training import learn
from tuner.cluster.scenario import Scenario, Session
from tuner.envs.cluster import BAD, BUSY, EXAMPLE, ClusterEnv, cluster, cluster_vector
from tuner.envs.cluster_backend import SimulatedCluster
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Knob, KnobSpace
from tuner.scheduling.knobs import KNOBS, scheduler_space
from tuner.testing.environment import EnvironmentContract

NAME = "tuner.envs:tuner/Cluster-v0"
SMALL = Scenario(
    policy="symphony",
    accelerators=2,
    rate=300.0,
    sessions=(Session(name="a", alpha_ms=2.0, beta_ms=10.0, slo_ms=60.0, copies=2),),
)
"""Few requests per window, so that the suite stays fast without compilation."""


class TestCluster(EnvironmentContract):
    """The contract of environments."""

    steps = 4

    @pytest.fixture
    def env(self) -> Iterator[gym.Env[np.ndarray, np.int64]]:
        env = gym.make(NAME, scenario=SMALL, window=0.5)
        yield env
        env.close()


def number(env: ClusterEnv, **knobs: float) -> np.int64:
    """The number of the default configuration with some knobs changed."""
    return np.int64(env.space.encode(env.space.default.replace(**knobs)))


def test_the_data_sheet_is_true() -> None:
    """720 configurations, 13 values observed."""
    env = cluster()

    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert env.action_space.n == 720
    assert env.observation_space.shape == (13,)
    assert EXAMPLE.policy == "symphony"


@pytest.mark.compiled
def test_batching_is_what_keeps_the_slo() -> None:
    """Under a load that needs batches, a batch cap of one loses requests and costs more than the default."""
    env = cluster(scenario=SMALL, window=2.0)
    env.reset(seed=1)

    observation, capped, *_ = env.step(number(env, batch_cap=1.0))
    default, free, _, _, info = env.step(number(env))

    assert float(capped) < -2
    assert observation[BAD] > 0.2
    assert -1 <= float(free) < 0
    assert default[BAD] <= 0.01
    assert default[BUSY] == pytest.approx(info["measurement"].gpu)
    assert info["cost"] == pytest.approx(info["measurement"].gpu)


@pytest.mark.compiled
def test_deferral_uses_the_accelerators_less_than_eagerness() -> None:
    """Larger batches need less time for the same requests; eager ones answer sooner."""
    env = cluster(scenario=SMALL.scaled(0.5), window=4.0, objective="latency")
    env.reset(seed=1)

    eager = env.step(number(env, deferral=0.0))[4]["measurement"]
    deferred = env.step(number(env, deferral=1.0))[4]["measurement"]

    assert deferred.gpu < 0.9 * eager.gpu
    assert deferred.batch_mean > eager.batch_mean
    assert deferred.latency_p95 > eager.latency_p95


def test_latency_can_be_the_goal() -> None:
    """While the bad rate is kept, the cost is p95 over the SLO."""
    env = cluster(scenario=SMALL.scaled(0.5), objective="latency", window=2.0)
    _, info = env.reset(seed=1)

    assert info["cost"] == pytest.approx(info["measurement"].latency_p95 / 0.060)


@pytest.mark.compiled
def test_rates_are_those_asked_for() -> None:
    """A number replaces the scenario's rate; of a range each episode draws its own."""
    _, info = cluster(scenario=SMALL, rate=100.0, window=5.0).reset(seed=1)
    ranged = cluster(scenario=SMALL, rate=(50.0, 200.0), window=5.0)
    rates = [ranged.reset(seed=seed)[1]["measurement"].arrival_rate for seed in range(5)]

    assert info["measurement"].arrival_rate == pytest.approx(100, rel=0.2)
    assert 35 < min(rates) < max(rates) < 260
    assert max(rates) > 1.3 * min(rates)


def test_latencies_of_unlike_slos_are_scaled_to_the_first() -> None:
    """Two sessions that do the same at double the SLO count half the latency."""
    one = Session(name="a", profile_ms=(10.0,), slo_ms=100.0, rate=5.0, arrival="constant")
    two = one.model_copy(update={"name": "b", "slo_ms": 200.0})
    alike = Scenario(policy="symphony", options={"deferral": 0.0}, accelerators=4, sessions=(one,))
    both = alike.model_copy(update={"sessions": (one, two)})

    plain, mixed = (
        SimulatedCluster(scenario, KnobSpace(KNOBS[1:2])).measure(4.0) for scenario in (alike, both)
    )

    assert plain.latency_mean == pytest.approx(0.010, rel=0.02)
    assert mixed.latency_mean == pytest.approx(0.0075, rel=0.02)


def test_an_agent_learns_in_it() -> None:
    """RRL's training loop works on it, and levels are named."""

    class Fixed:
        """Always chooses the default."""

        def __init__(self, space: KnobSpace) -> None:
            self.number = space.encode(space.default)
            self.costs: list[float] = []

        def select(self, state: object) -> int:
            return self.number

        def update(self, state: object, configuration: int, cost: float, following: object) -> None:
            self.costs.append(cost)

    env = cluster(scenario=SMALL, window=0.5, episode_windows=2, levels=LoadLevels())
    agent = Fixed(env.space)

    history = learn(env, agent, 3, seed=1)  # type: ignore[arg-type]

    assert len(history) == len(agent.costs) == 3
    assert all(window.level == pytest.approx(LoadLevels().level(300.0), abs=1) for window in history)


def traced(folder: Path, seconds: float) -> Scenario:
    """A cluster whose only session gets 100 requests/s from a trace."""
    trace = folder / "trace.csv"
    trace.write_text("\n".join(f"{number / 100}" for number in range(int(seconds * 100) + 1)))
    session = Session(name="a", alpha_ms=2.0, beta_ms=10.0, slo_ms=60.0, arrival=f"trace:{trace}")
    return Scenario(policy="symphony", accelerators=2, sessions=(session,))


def test_an_episode_ends_before_its_trace(tmp_path: Path) -> None:
    """No window shows the time after its last request, in which nothing is asked and every reward is best."""
    env = cluster(scenario=traced(tmp_path, 8.0), window=2.0)
    _, info = env.reset(seed=1)
    steps = [env.step(number(env)) for _ in range(2)]

    assert [truncated for *_, truncated, _ in steps] == [False, True]
    assert [step[4]["measurement"].arrival_rate for step in steps] == [100.0, 100.0]
    assert info["measurement"].arrival_rate == pytest.approx(100, rel=0.01)


def test_a_trace_of_less_than_two_windows_is_refused(tmp_path: Path) -> None:
    """Also where only the highest of a range of rates plays it so fast, or both windows follow a change."""
    scenario = traced(tmp_path, 8.0)

    for arguments in ({"window": 4.0}, {"window": 3.95}, {"window": 2.0, "rate": (100.0, 300.0)}):
        with pytest.raises(InvalidInput, match=r"window: two of .* s, each 0.06 s after a change"):
            cluster(scenario=scenario, **arguments)


def test_nothing_asked() -> None:
    """A window without requests earns 0."""
    quiet = SMALL.model_copy(update={"rate": 1e-3})
    observation, info = cluster(scenario=quiet, window=0.5).reset(seed=1)

    assert info["cost"] == 0
    assert observation[BAD] == -1


@pytest.mark.parametrize(
    "arguments",
    [
        {"scenario": SMALL.model_copy(update={"policy": "eager"})},
        {"rate": 0.0},
        {"rate": (5.0, 2.0)},
        {"rate": [5.0, 9.0]},
        {"rate": math.inf},
        {"objective": "cpu"},
        {"window": 0.0},
        {"window": "2s"},
        {"window": math.inf},
        {"episode_windows": 0},
        {"episode_windows": 2.5},
    ],
)
def test_bad_arguments(arguments: dict[str, object]) -> None:
    """Refused at once, by name."""
    with pytest.raises(InvalidInput, match=next(iter(arguments)).replace("scenario", "policy")):
        cluster(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scenario": "cluster.yaml"}, "scenario: 'cluster.yaml' is no `Scenario`"),
        (
            {"scenario": SMALL.model_copy(update={"planner": "symphony"})},
            "planner: symphony does not plan here, where all accelerators are in use; leave it out",
        ),
        ({"space": {"batch_cap": (1, 2)}}, "space: {'batch_cap': (1, 2)} is no `KnobSpace`"),
        ({"space": KnobSpace([Knob(name="batch_cap", grid=(1, 1.5), default=1)])}, "1.5 is no whole number"),
        ({"space": KnobSpace([Knob(name="threads", grid=(1, 2), default=1)])}, "knob threads: unknown"),
        (
            {"space": KnobSpace([Knob(name="deferral", grid=(0, 2), default=0)])},
            "deferral: 2.0 is not in 0..1",
        ),
        (
            {"space": KnobSpace([Knob(name="drop_rule", grid=(1, 3), default=1)])},
            "knob drop_rule: 3 is not in",
        ),
    ],
)
def test_what_the_scheduler_does_not_know_is_refused_when_it_is_made(
    arguments: dict[str, object], words: str
) -> None:
    """Not at the first reset, nor in the middle of an episode."""
    with pytest.raises(InvalidInput, match=re.escape(words)):
        cluster(**arguments)


class TestBackend:
    """The simulated cluster as a backend."""

    @pytest.fixture
    def backend(self) -> SimulatedCluster:
        return SimulatedCluster(SMALL)

    def test_it_begins_with_the_defaults(self, backend: SimulatedCluster) -> None:
        """At time 0, nothing counted, all knobs at their defaults."""
        assert backend.current() == scheduler_space().default
        assert backend.now() == 0
        assert backend.counters().requests == 0
        assert backend.describe().writable
        assert backend.profile() is None

    def test_knobs_are_changed_at_once_and_read_back(self, backend: SimulatedCluster) -> None:
        """Changing is free; applying the same again changes nothing."""
        wanted = backend.space.default.replace(deferral=0.0, batch_cap=8.0)

        first, second = backend.apply(wanted), backend.apply(wanted)

        assert (first.changed, first.cost, first.configuration) == (True, ApplyCost.FREE, wanted)
        assert first.settle == pytest.approx(0.060)
        assert not second.changed
        assert backend.current() == wanted

    @pytest.mark.parametrize("change", [{"colour": 1.0}, {"drop_rule": 7.0}, {"deferral": -1.0}])
    def test_unusable_configurations_are_refused(
        self, backend: SimulatedCluster, change: dict[str, float]
    ) -> None:
        """Nothing is changed."""
        with pytest.raises(InvalidInput):
            backend.apply(backend.space.default.replace(**change))

        assert backend.current() == backend.space.default

    def test_requests_do_not_end_with_the_scenario(self, backend: SimulatedCluster) -> None:
        """As many come in each window, however many the scenario has."""
        short = SimulatedCluster(SMALL.model_copy(update={"requests": 20}))

        assert short.measure(1.0).requests == backend.measure(1.0).requests > 200
        assert short.measure(1.0).requests > 200

    def test_a_missing_knob_is_named(self, backend: SimulatedCluster) -> None:
        """A configuration gives every knob a value."""
        with pytest.raises(InvalidInput, match="batch_cap"):
            backend.apply({"deferral": 1.0})  # type: ignore[arg-type]

    def test_counters_add_up_the_windows(self, backend: SimulatedCluster) -> None:
        """Totals are the sums of what the windows showed, and time passes as asked for."""
        windows = [backend.measure(1.0), backend.measure(2.0, settle=0.5)]
        totals = backend.counters()

        assert [(w.start, w.end) for w in windows] == [(0.0, 1.0), (1.5, 3.5)]
        assert totals.time == 3.5
        assert totals.requests > sum(w.requests for w in windows)  # those of the settling, too
        assert totals.failures >= sum(w.failures for w in windows)
        assert totals.requests <= totals.inferences <= totals.requests + totals.failures
        assert totals.latency == pytest.approx(totals.queue + totals.compute)

    def test_a_window_is_consistent(self, backend: SimulatedCluster) -> None:
        """Batches hold the answered requests; latency is waiting and executing; rates are those offered."""
        backend.measure(0.5)
        window = backend.measure(5.0)

        assert window.arrival_rate == pytest.approx(300, rel=0.1)
        assert sum(size * count for size, count in window.batches.items()) == pytest.approx(
            window.requests, rel=0.02
        )
        assert window.latency_mean == pytest.approx(window.queue_mean + window.compute_mean)
        assert window.latency_p50 <= window.latency_p95 <= window.latency_p99 <= 0.061
        assert 0 < window.gpu < 1
        assert math.isnan(window.cpu)


def test_a_vector_that_began_again_is_closed_again() -> None:
    """As often as it is closed; its threads and its clusters end."""
    vector = cluster_vector(num_envs=1, scenario=SMALL, window=0.2)
    for seed in (1, 2):
        vector.reset(seed=seed)
        vector.close()
        vector.close()

        assert vector.envs[0].backend is None


def test_a_vector_that_was_closed_begins_no_episode_by_itself() -> None:
    """Not where one has ended, either: a reset is missing."""
    vector = cluster_vector(num_envs=1, scenario=SMALL, window=0.2, episode_windows=1)
    vector.reset(seed=1)
    assert vector.step(np.array([7]))[3].all()
    vector.close()

    with pytest.raises(gym.error.ResetNeeded):
        vector.step(np.array([7]))


@pytest.mark.compiled
def test_vector_form_equals_single_ones() -> None:
    """Each cluster of the vector form shows what it would show alone."""
    vector = gym.make_vec(NAME, num_envs=2, vectorization_mode="vector_entry_point", window=0.2)
    vector.reset(seed=3)
    observations, rewards, *_ = vector.step(np.array([7, 300]))

    for i, action in enumerate((7, 300)):
        single = cluster(window=0.2)
        single.reset(seed=3 + i)
        observation, reward, *_ = single.step(np.int64(action))
        assert np.array_equal(observation, observations[i])
        assert reward == rewards[i]
    vector.close()
    with pytest.raises(InvalidInput, match="num_envs"):
        cluster_vector(num_envs=0)
