"""DeepRM: a small network learns a stochastic policy by REINFORCE, from episodes.

Mao et al., "Resource management with deep reinforcement learning", HotNets'16, as the authors of RRL
compare with it (section 6.1): one hidden layer of 20 ReLU units, softmax over the actions, RMSProp at 0.001
(rho 0.9, epsilon 1e-9), discount 1, and as baseline the mean return at the same time step of other
episodes.

DeepRM chooses which waiting job to run. The authors of RRL do not say what its outputs mean for a model
server. We let it take the steps that CAPES takes: one knob one step, or nothing. A softmax over all 1,331
configurations would reinforce each output once in a thousand windows; with steps it learns faster.

What else the papers leave open, chosen to make it as strong as we could:

* an episode is 10 windows long and goes on where the last one ended: a server is never reset;
* after every episode the network takes ten steps of RMSProp along the gradient over the last five episodes,
  whose mean is the baseline (DeepRM: one step over 20 episodes in parallel; there is one server, and no time:
  one step per episode was a third worse, fifty were, too);
* the reward is minus the logarithm of the cost (:mod:`tuner.agents.log_cost`); inputs are those of CAPES;
* steps that lead nowhere or are not allowed have probability 0; in training only the former have it;
* :meth:`DeepRM.best` answers from the mean costs measured at the load, which DeepRM does not keep; without
  any it is the likeliest step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tuner.agents.log_cost import log_cost
from tuner.agents.rivals.walker import Transition, Walker, WalkerParameters, build_network
from tuner.agents.rules import check_rules
from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    import torch

__all__ = ["DeepRM", "DeepRMParameters", "returns"]


def returns(rewards: np.ndarray, discount: float) -> np.ndarray:
    """Return for every step the discounted sum of the rewards from it on.   # (n,)."""
    sums = np.empty(len(rewards))
    ahead = 0.0
    for step in range(len(rewards) - 1, -1, -1):
        ahead = rewards[step] + discount * ahead
        sums[step] = ahead
    return sums


MOST = 100_000
"""Windows, episodes and steps of training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepRMParameters(WalkerParameters):
    """The constants of DeepRM."""

    hidden: tuple[int, ...] = (20,)
    """Units of the hidden layers."""
    discount: float = 1.0
    """Of future rewards."""
    episode: int = 10
    """Windows per episode."""
    episodes: int = 5
    """Last episodes that a gradient is taken over; their mean return at a time step is the baseline."""
    passes: int = 10
    """Steps of RMSProp after every episode."""

    def __post_init__(self) -> None:
        WalkerParameters.__post_init__(self)
        check_rules(
            self,
            discount=(0 <= self.discount <= 1, "from 0 to 1"),
            episode=(1 <= self.episode <= MOST, f"from 1 to {MOST:,}"),
            episodes=(2 <= self.episodes <= MOST, f"from 2 to {MOST:,}"),
            passes=(1 <= self.passes <= MOST, f"from 1 to {MOST:,}"),
        )


class DeepRM(Walker[DeepRMParameters]):
    """The agent."""

    name = "deeprm"
    constants: ClassVar[type[Any]] = DeepRMParameters

    def __init__(
        self, space: KnobSpace, parameters: DeepRMParameters | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(space, parameters, seed=seed)
        self._episode: list[Transition] = []
        self._episodes: deque[list[Transition]] = deque(maxlen=self.parameters.episodes)

    def probabilities(self, inputs: np.ndarray, options: np.ndarray) -> np.ndarray:
        """Return the probability of every action; 0 for what is no option.   # (actions,)."""
        import torch

        with torch.no_grad():
            logits = self._networks[0](torch.from_numpy(inputs)).numpy().astype(np.float64)
        weights = np.where(options, np.exp(logits - logits[options].max()), 0.0)
        return np.asarray(weights / weights.sum())

    def _build(self) -> Sequence[torch.nn.Module]:
        import torch

        p = self.parameters
        policy = build_network(
            self.inputs.width, p.hidden, self.steps.count, activation="ReLU", seed=self._seed
        )
        self._optimizer = torch.optim.RMSprop(policy.parameters(), lr=p.learning_rate, alpha=0.9, eps=1e-9)
        return (policy,)

    def _choose(self, inputs: np.ndarray, options: np.ndarray, *, explore: bool) -> int:
        probabilities = self.probabilities(inputs, options)
        if not explore:
            return int(np.argmax(probabilities))
        drawn = int(np.searchsorted(np.cumsum(probabilities), self._generator.random(), side="right"))
        return min(drawn, int(np.flatnonzero(options)[-1]))

    def _learn_transition(self, transition: Transition) -> None:
        self._episode.append(transition)
        if len(self._episode) == self.parameters.episode:
            self._episodes.append(self._episode)
            self._episode = []
            self._train()

    def _train(self) -> None:
        """Steps of RMSProp along ``sum of grad log pi(a_t) * (v_t - b_t)`` over the last episodes."""
        import torch

        rewards = np.array([[-log_cost(step.cost) for step in episode] for episode in self._episodes])
        gained = np.array([returns(row, self.parameters.discount) for row in rewards])
        advantages = torch.tensor((gained - gained.mean(axis=0)).ravel(), dtype=torch.float32)
        steps = [step for episode in self._episodes for step in episode]
        before = torch.from_numpy(self.inputs.standardised(np.stack([step.before for step in steps])))
        impossible = torch.from_numpy(~np.stack([step.options_before for step in steps]))
        actions = torch.tensor([[step.action] for step in steps])
        for _ in range(self.parameters.passes):
            logits = self._networks[0](before).masked_fill(impossible, -torch.inf)
            chosen = torch.log_softmax(logits, dim=1).gather(1, actions)[:, 0]
            self._descend(-(chosen * advantages).mean())
