"""The contract of an agent: a pytest class that every learning or searching agent is held to.

An agent's test module subclasses :class:`AgentContract`::

    class TestMine(AgentContract):
        windows = 40

        def make(self, space, seed):
            return Mine(space, seed=seed)

        def load(self, folder, space, seed):
            return Mine.load(folder, space, seed=seed)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tuner.agents.agent import Agent, State
from tuner.errors import InvalidInput
from tuner.knobs import Knob, KnobSpace, Role

__all__ = ["AgentContract", "Valley", "run"]

LOW, HIGH = 20, 29


def make_space() -> KnobSpace:
    """Return the space of the contract: 6 x 5 x 2 configurations."""
    return KnobSpace(
        [
            Knob(name="max_batch_size", grid=(1, 2, 4, 8, 16, 32), default=1, role=Role.BATCH),
            Knob(
                name="max_queue_delay",
                grid=(0, 0.001, 0.002, 0.005, 0.01),
                default=0,
                unit="s",
                role=Role.DELAY,
            ),
            Knob(name="instances", grid=(1, 2), default=1, role=Role.PARALLELISM),
        ]
    )


@dataclass(frozen=True)
class Valley:
    """A server whose cost rises with the distance from its best configuration, which the load moves."""

    space: KnobSpace
    noise: float = 0.05
    """Relative noise of one window."""

    def costs(self, level: int) -> np.ndarray:
        """Expected cost of every configuration, the least 0.4.   # (size,)."""
        place = (2, 1, 1) if level == LOW else (4, 3, 0)
        best = int(np.ravel_multi_index(place, self.space.shape))
        return np.asarray(0.4 + 0.25 * self.space.distances(best) ** 1.5)

    def state(self, level: int, configuration: int, cost: float = 0.0) -> State:
        """What an agent sees of a window."""
        features = self.space.features()[configuration]
        observation = np.array([level / 10, cost, cost / 2, *features], dtype=np.float32)
        return State(level=level, configuration=configuration, observation=observation)


@dataclass(frozen=True)
class Step:
    """A window as a journal has it."""

    before: State
    allowed: np.ndarray | None
    configuration: int
    cost: float
    after: State


def run(
    agent: Agent,
    valley: Valley,
    level: int,
    windows: int,
    *,
    seed: int,
    start: int = 0,
    step: float = math.inf,
) -> list[Step]:
    """Let an agent choose and learn for some windows.

    Args:
        agent: It is changed.
        valley: What it is tried on.
        level: The load.
        windows: How many.
        seed: Of the noise.
        start: The configuration in force.
        step: Grid steps that it may go at once.

    Returns:
        What happened.
    """
    generator = np.random.default_rng(seed)
    costs, journal = valley.costs(level), []
    before = valley.state(level, start, float(costs[start]))
    for _ in range(windows):
        allowed = None if math.isinf(step) else valley.space.region(before.configuration, step)
        configuration = agent.select(before, allowed)
        cost = float(costs[configuration] * generator.lognormal(0.0, valley.noise))
        after = valley.state(level, configuration, cost)
        agent.update(after, configuration, cost, after)
        journal.append(Step(before, allowed, configuration, cost, after))
        before = after
    return journal


class AgentContract:
    """Inherit, and override :meth:`make` and :meth:`load`.

    An agent gets states with an observation of six numbers, and without one. It must

    * choose numbers of configurations, only of those in ``allowed``, and refuse an empty ``allowed`` with a
      ``ValueError`` that says "at least one" (:func:`tuner.agents.choice.allowed_numbers` does both);
    * choose the same in the same windows, and draw nothing in ``best``;
    * refuse a cost that is negative or not finite with a ``ValueError`` that says "finite"
      (:func:`tuner.agents.agent.check_cost`), and go on if it is told of another configuration than it chose;
    * return in ``costs`` roughly what was measured, and NaN at a load of which it knows nothing;
    * find a good configuration in ``windows`` windows, and keep it while another load is served;
    * be saved and loaded, also before its first window, and refuse a policy of other knobs with an
      ``InvalidInput`` that names the knob (:func:`tuner.agents.policy_file.check_knobs`).
    """

    windows = 60
    """Windows at one load in which it finds a good configuration of 60."""
    near = 1.35
    """What counts as good: this times the least cost. The best is 1, its direct neighbours 1.63."""
    seeds = 3
    """Runs of which the median must be good."""
    learns = True
    """Whether costs are learned at all; an oracle knows them."""
    per_level = True
    """Whether each load has costs of its own."""

    def make(self, space: KnobSpace, seed: int) -> Agent:
        """Return a fresh agent that repeats its decisions when given the same windows."""
        raise NotImplementedError("override `make`")

    def load(self, folder: Path, space: KnobSpace, seed: int) -> Agent:
        """Return a saved agent."""
        raise NotImplementedError("override `load`")

    @pytest.fixture
    def valley(self) -> Valley:
        """What it is tried on."""
        return Valley(make_space())

    @pytest.mark.parametrize("step", [1.0, 2.0])
    def test_keeps_to_the_allowed(self, valley: Valley, step: float) -> None:
        """Whatever is allowed, select and best choose of it."""
        agent = self.make(valley.space, 0)

        for window in run(agent, valley, LOW, 12, seed=1, step=step):
            assert window.allowed is not None
            assert window.configuration in window.allowed
            assert agent.best(window.before, window.allowed) in window.allowed

    def test_nothing_allowed_is_refused(self, valley: Valley) -> None:
        """There is no answer to it."""
        for choose in (self.make(valley.space, 0).select, self.make(valley.space, 0).best):
            with pytest.raises(ValueError, match="at least one"):
                choose(valley.state(LOW, 0), np.array([], dtype=np.int64))

    def test_chooses_numbers_of_configurations(self, valley: Valley) -> None:
        """Without a restriction every choice is in 0..size-1, at known and new loads, seeing or blind."""
        agent = self.make(valley.space, 0)
        blind = State(level=HIGH, configuration=3)

        choices = [window.configuration for window in run(agent, valley, LOW, 6, seed=2)]
        choices += [agent.select(blind), agent.best(blind), agent.best(valley.state(LOW, 3))]

        assert all(0 <= choice < valley.space.size for choice in choices)

    def test_same_windows_same_decisions(self, valley: Valley) -> None:
        """A run is resumed by telling a fresh agent of its windows: the next decisions are the same."""
        first, second = self.make(valley.space, 3), self.make(valley.space, 3)
        journal = run(first, valley, LOW, 10, seed=4, step=2.0)

        for window in journal:
            assert second.select(window.before, window.allowed) == window.configuration
            second.update(window.after, window.configuration, window.cost, window.after)

        last = journal[-1].configuration
        following = [run(agent, valley, LOW, 5, seed=5, start=last, step=2.0) for agent in (first, second)]
        assert [s.configuration for s in following[0]] == [s.configuration for s in following[1]]

    def test_best_never_explores(self, valley: Valley) -> None:
        """Asking for the best changes nothing: it draws no randomness."""

        class Asked:
            """Asks before every choice."""

            def __init__(self, agent: Agent) -> None:
                self.agent = agent

            def __getattr__(self, name: str) -> object:
                return getattr(self.agent, name)

            def select(self, state: State, allowed: np.ndarray | None = None) -> int:
                assert self.agent.best(state) == self.agent.best(state)
                return self.agent.select(state, allowed)

        plain, asked = self.make(valley.space, 6), Asked(self.make(valley.space, 6))

        journals = [run(agent, valley, LOW, 12, seed=7) for agent in (plain, asked)]  # type: ignore[arg-type]  # a proxy

        assert [s.configuration for s in journals[0]] == [s.configuration for s in journals[1]]

    @pytest.mark.parametrize("cost", [math.nan, math.inf, -0.1])
    def test_costs_that_are_none_are_refused(self, valley: Valley, cost: float) -> None:
        """The caller drops windows without a cost; nothing is learned from such a mistake."""
        agent = self.make(valley.space, 0)
        before = agent.costs(LOW)

        with pytest.raises(ValueError, match="finite"):
            agent.update(valley.state(LOW, 5), 5, cost, valley.state(LOW, 5))

        np.testing.assert_array_equal(agent.costs(LOW), before)

    def test_unused_windows_and_other_choices_are_survived(self, valley: Valley) -> None:
        """A window may be disturbed and left out; another configuration than chosen may be in force."""
        agent, costs = self.make(valley.space, 0), valley.costs(LOW)

        for other in (7, 30, 7, 59):
            agent.select(valley.state(LOW, other))
            agent.select(valley.state(LOW, other))
            state = valley.state(LOW, other, float(costs[other]))
            agent.update(state, other, float(costs[other]), state)

        assert agent.costs(LOW)[[7, 30, 59]] == pytest.approx(costs[[7, 30, 59]], rel=0.5)

    def test_costs_are_those_measured(self, valley: Valley) -> None:
        """Learned costs are near what was measured, and unknown (NaN) at a load that was not."""
        agent = self.make(valley.space, 0)
        journal = run(agent, valley, LOW, 15, seed=8)

        learned = agent.costs(LOW)

        assert learned.shape == (valley.space.size,)
        for window in journal:
            assert learned[window.configuration] == pytest.approx(
                valley.costs(LOW)[window.configuration], rel=0.6
            )
        assert not (self.learns and self.per_level) or np.isnan(agent.costs(HIGH)).all()

    def test_finds_a_good_configuration(self, valley: Valley) -> None:
        """In `windows` windows, in the median of some seeds, `best` is near the least cost."""
        found = []
        for seed in range(self.seeds):
            agent = self.make(valley.space, seed)
            journal = run(agent, valley, LOW, self.windows, seed=seed)
            found.append(valley.costs(LOW)[agent.best(journal[-1].after)] / valley.costs(LOW).min())

        assert np.median(found) <= self.near, found

    def test_loads_are_remembered(self, valley: Valley) -> None:
        """What is best at a load is not forgotten while another is served."""
        if not self.per_level:
            pytest.skip("it keeps one table for all loads")
        agent = self.make(valley.space, 0)
        run(agent, valley, LOW, 15, seed=9)
        best = agent.best(valley.state(LOW, 0))
        before = agent.costs(LOW)[best]

        run(agent, valley, HIGH, 15, seed=10)

        assert agent.best(valley.state(LOW, 0)) == best
        np.testing.assert_allclose(agent.costs(LOW)[best], before, rtol=0.1)

    def test_is_saved_and_loaded(self, valley: Valley, tmp_path: Path) -> None:
        """A loaded agent knows the same, without pickle, and goes on learning."""
        agent = self.make(valley.space, 0)
        journal = run(agent, valley, LOW, 15, seed=11)

        agent.save(tmp_path / "policy")
        loaded = self.load(tmp_path / "policy", valley.space, 1)

        np.testing.assert_array_equal(loaded.costs(LOW), agent.costs(LOW))
        assert loaded.best(journal[-1].after) == agent.best(journal[-1].after)
        assert {path.suffix for path in (tmp_path / "policy").iterdir()} == {".json", ".npz"}
        for path in (tmp_path / "policy").glob("*.npz"):
            with np.load(path, allow_pickle=False) as arrays:
                assert [arrays[name].dtype.kind in "fiu" for name in arrays.files].count(False) == 0
        run(loaded, valley, HIGH, 5, seed=12)
        assert not self.learns or np.isfinite(loaded.costs(HIGH)).any()

    def test_knows_nothing_and_is_saved(self, valley: Valley, tmp_path: Path) -> None:
        """Before its first window."""
        self.make(valley.space, 0).save(tmp_path)

        loaded = self.load(tmp_path, valley.space, 0)

        assert 0 <= loaded.select(valley.state(LOW, 0)) < valley.space.size

    def test_policy_of_other_knobs_is_refused(self, valley: Valley, tmp_path: Path) -> None:
        """It names the knob that differs."""
        self.make(valley.space, 0).save(tmp_path)
        batch, delay, _ = valley.space.knobs
        other = KnobSpace([batch, delay, Knob(name="instances", grid=(1, 2, 3), default=1)])

        with pytest.raises(InvalidInput, match="instances"):
            self.load(tmp_path, other, 0)

    def test_closing_twice(self, valley: Valley) -> None:
        """Closing twice is harmless."""
        agent = self.make(valley.space, 0)

        agent.close()
        agent.close()
