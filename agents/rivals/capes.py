"""CAPES: deep Q-learning over single steps of single knobs.

Li et al., CAPES, SC'17, and the authors' published code, which the authors of RRL ran (section 6.1): two
layers of 200 tanh units give a Q value to every action: one knob one step down or up, or nothing. The
reward is the change of the objective from one window to the next. Experience replay in batches of 32,
discount 0.99, a target network that follows by 0.01, RMSProp at 0.001 (decay 0.9), epsilon-greedy with
epsilon falling linearly to 0.05.

``capes_level`` is rewarded for the level of the objective instead. Rewards for changes cancel out along the
way: with a discount near 1 it hardly matters when, or whether, a better configuration is reached, and staying
in overload costs nothing. Over 800 windows of the simulated TensorFlow Serving (``tuner compare --agents
capes,capes_level --windows 800 --seeds 3``) the mean cost of ``capes`` was 17 times above the oracle's, that
of ``capes_level`` 1.5 times. So ``capes`` is the published rival, and ``capes_level`` the one to beat.

What the papers leave open, chosen to make it as strong as we could:

* costs enter the reward as *logarithms* (:mod:`tuner.agents.log_cost`);
* inputs are the environment's observation (load, latency, queueing, processors), the load level, the last
  cost and the configuration, all standardised; CAPES feeds ten raw ticks of 1 s, our windows are longer;
* two training steps per window (CAPES: one per second), on the Huber loss; eight were worse, and slower;
* epsilon falls within 200 windows (CAPES: 5,000 to a million seconds); 100 and 400 were worse;
* steps that lead nowhere or are not allowed are never chosen; those that lead nowhere are not counted in the
  target's maximum either;
* :meth:`Capes.best` answers from the mean costs measured at the load, which CAPES does not keep; without any
  it is the network's greedy step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tuner.agents.log_cost import log_cost
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rivals.walker import Transition, Walker, WalkerParameters, build_network
from tuner.agents.rules import check_rules
from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    import torch

__all__ = ["Capes", "CapesLevel", "CapesLevelParameters", "CapesParameters"]

MOST = 1_000_000
"""Steps remembered, replayed at once, or trained in a window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapesParameters(WalkerParameters):
    """The constants of CAPES."""

    hidden: tuple[int, ...] = (200, 200)
    """Units of the hidden layers."""
    discount: float = 0.99
    """Of future rewards."""
    target_rate: float = 0.01
    """Share by which the target network follows in every training step."""
    reward: Literal["change", "level"] = "change"
    """The reward of an action: by how much the cost fell, or how low it is; both as logarithms."""
    batch: int = 32
    """Steps replayed in a training step."""
    training_steps: int = 2
    """Training steps per window."""
    memory: int = 10_000
    """Steps remembered."""
    epsilon_first: float = 1.0
    """Share of random actions in the first window."""
    epsilon_last: float = 0.05
    """Share of random actions in the end."""
    epsilon_windows: int = 200
    """Windows over which it falls from the first to the last value."""

    def __post_init__(self) -> None:
        WalkerParameters.__post_init__(self)
        first = self.epsilon_first
        check_rules(
            self,
            discount=(0 <= self.discount < 1, "at least 0 and below 1"),
            target_rate=(0 < self.target_rate <= 1, "above 0 and at most 1"),
            batch=(1 <= self.batch <= MOST, f"from 1 to {MOST:,}"),
            training_steps=(1 <= self.training_steps <= MOST, f"from 1 to {MOST:,}"),
            memory=(1 <= self.memory <= MOST, f"from 1 to {MOST:,}"),
            epsilon_windows=(self.epsilon_windows >= 1, "at least 1"),
            epsilon_first=(0 <= first <= 1, "from 0 to 1"),
            epsilon_last=(0 <= self.epsilon_last <= first, f"from 0 to epsilon_first, {first:g}"),
        )

    def epsilon(self, windows: int) -> float:
        """Return the share of random actions after a number of windows."""
        fallen = min(windows / self.epsilon_windows, 1.0)
        return self.epsilon_first + fallen * (self.epsilon_last - self.epsilon_first)


@dataclass(frozen=True, kw_only=True, slots=True)
class CapesLevelParameters(CapesParameters):
    """The constants of CAPES with the reward that works better here."""

    reward: Literal["change", "level"] = "level"
    """The reward of an action."""


class ReplayBuffer:
    """The replay buffer: the steps remembered, the oldest overwritten first.

    Args:
        most: How many.
        width: Of the input vectors.
        actions: How many there are.

    Attributes:
        inputs: Before and after each step, not standardised.   # (2, most, width)
        actions: The action of each step.   # (most,) int64
        rewards: Its reward.   # (most,) float32
        options: Actions that lead somewhere from the next state.   # (most, actions) bool
        count: Steps in the buffer.
    """

    def __init__(self, most: int, width: int, actions: int) -> None:
        self.inputs = np.zeros((2, most, width))
        self.actions = np.zeros(most, dtype=np.int64)
        self.rewards = np.zeros(most, dtype=np.float32)
        self.options = np.zeros((most, actions), dtype=bool)
        self.count = 0
        self._next = 0

    def add(self, transition: Transition, reward: float) -> None:
        """Remember a step."""
        row = self._next
        self.inputs[0, row], self.inputs[1, row] = transition.before, transition.after
        self.actions[row] = transition.action
        self.rewards[row] = reward
        self.options[row] = transition.options
        self._next = (row + 1) % len(self.actions)
        self.count = max(self.count, row + 1)


class Capes(Walker[CapesParameters]):
    """The agent."""

    name = "capes"
    constants: ClassVar[type[Any]] = CapesParameters

    def __init__(self, space: KnobSpace, parameters: CapesParameters | None = None, *, seed: int = 0) -> None:
        super().__init__(space, parameters, seed=seed)
        self.windows = 0
        """Steps learned from."""
        self._replay: ReplayBuffer | None = None

    def q_values(self, inputs: np.ndarray) -> np.ndarray:
        """Return the Q value of every action.   # (actions,)."""
        import torch

        with torch.no_grad():
            return np.asarray(self._networks[0](torch.from_numpy(inputs)).numpy(), dtype=np.float64)

    def _build(self) -> Sequence[torch.nn.Module]:
        import torch

        online, target = (
            build_network(
                self.inputs.width,
                self.parameters.hidden,
                self.steps.count,
                activation="Tanh",
                seed=self._seed,
            )
            for _ in range(2)
        )
        self._optimizer = torch.optim.RMSprop(
            online.parameters(), lr=self.parameters.learning_rate, alpha=0.9, foreach=True
        )
        return online, target

    def _choose(self, inputs: np.ndarray, options: np.ndarray, *, explore: bool) -> int:
        if explore and self._generator.random() < self.parameters.epsilon(self.windows):
            return int(self._generator.choice(np.flatnonzero(options)))
        return int(np.argmax(np.where(options, self.q_values(inputs), -np.inf)))

    def _learn_transition(self, transition: Transition) -> None:
        if self._replay is None:
            self._replay = ReplayBuffer(self.parameters.memory, self.inputs.width, self.steps.count)
        change = self.parameters.reward == "change"
        base = log_cost(transition.cost_before) if change else 0.0
        self._replay.add(transition, base - log_cost(transition.cost))
        self.windows += 1
        size = (self.parameters.training_steps, self.parameters.batch)
        for rows in self._generator.integers(self._replay.count, size=size):
            self._train(self._replay, rows)

    def _train(self, replay: ReplayBuffer, rows: np.ndarray) -> None:
        """One step of RMSProp on replayed steps, and the target network follows."""
        import torch

        before, after = self.inputs.standardised(replay.inputs[:, rows])
        online, target = self._networks
        with torch.no_grad():
            values = target(torch.from_numpy(after))
            values[torch.from_numpy(~replay.options[rows])] = -torch.inf
            wanted = torch.from_numpy(replay.rewards[rows]) + self.parameters.discount * values.amax(dim=1)
        actions = torch.from_numpy(replay.actions[rows, None])
        q = online(torch.from_numpy(before)).gather(1, actions)[:, 0]
        self._descend(torch.nn.functional.smooth_l1_loss(q, wanted))
        with torch.no_grad():
            followers: list[torch.Tensor] = list(target.parameters())
            leaders: list[torch.Tensor] = list(online.parameters())
            torch._foreach_lerp_(followers, leaders, self.parameters.target_rate)

    def _arrays(self) -> dict[str, np.ndarray]:
        return super()._arrays() | {"walked": np.array([self.windows], dtype=np.int64)}

    def _restore(self, arrays: StoredArrays) -> None:
        super()._restore(arrays)
        self.windows = max(int(arrays.take("walked", (1,), "i")[0]), 0)


class CapesLevel(Capes):
    """The agent with the reward that works better here."""

    name = "capes_level"
    constants: ClassVar[type[Any]] = CapesLevelParameters
