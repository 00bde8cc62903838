"""What CAPES and DeepRM share: a network chooses steps of single knobs and learns from the steps taken.

A walker sees a window (:class:`~.inputs.Inputs`) and chooses one of the :class:`StepActions`; the next window
shows what the step was worth. The configurations in force tell which step was taken, because a guard may have
held the configuration or chosen another. A change that was not one step teaches the network nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from tuner.agents.agent import State
from tuner.agents.bookkeeper import Bookkeeper, Parameters
from tuner.agents.choice import allowed_numbers
from tuner.agents.policy_file import StoredArrays
from tuner.agents.rivals.inputs import Inputs
from tuner.agents.rivals.steps import StepActions
from tuner.agents.rules import check_rules, is_network
from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    import torch

__all__ = ["Transition", "Walker", "WalkerParameters", "build_network"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkerParameters(Parameters):
    """The constants that both have; each has defaults of its own."""

    hidden: tuple[int, ...]
    """Units of the hidden layers."""
    learning_rate: float = 0.001
    """Of RMSProp."""

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rules(
            self,
            hidden=is_network(self.hidden),
            learning_rate=(self.learning_rate > 0, "above 0"),
        )


W = TypeVar("W", bound=WalkerParameters)


@dataclass(frozen=True, slots=True)
class LastWindow:
    """The last window."""

    raw: np.ndarray
    """Its input vector, not standardised.   # (width,)."""
    configuration: int
    cost: float


class Transition(NamedTuple):
    """One step that was taken: state, action, next state and costs."""

    before: np.ndarray
    """Input vector that it was chosen on, not standardised.   # (width,)."""
    action: int
    after: np.ndarray
    """Input vector of the window that followed.   # (width,)."""
    options_before: np.ndarray
    """Actions that lead somewhere from where it was chosen.   # (actions,) bool."""
    options: np.ndarray
    """Actions that lead somewhere from where it led.   # (actions,) bool."""
    cost_before: float
    cost: float


class Walker(Bookkeeper[W]):
    """The base of an agent that takes steps.

    A subclass adds :meth:`_build`, :meth:`_choose` and :meth:`_learn_transition`.
    """

    def __init__(self, space: KnobSpace, parameters: W | None = None, *, seed: int = 0) -> None:
        super().__init__(space, parameters, seed=seed)
        self.inputs = Inputs(space)
        self.steps = StepActions(space)
        self._seed = seed
        self._last: LastWindow | None = None
        self._built = False
        self._optimizer: torch.optim.Optimizer

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose a step; where none is allowed, the allowed configuration nearest to the one in force."""
        return self._step(state, allowed_numbers(self.space, allowed), explore=True)

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        """Learn from one window, and from the step that led to it."""
        super().update(state, configuration, cost, next_state)
        here = State(level=state.level, configuration=configuration, observation=next_state.observation)
        raw = self.inputs.raw(here, cost)
        self.inputs.learn(raw)
        last, self._last = self._last, LastWindow(raw, configuration, cost)
        if last is None:
            return
        action = self.steps.between(last.configuration, configuration)
        if action is not None:
            self._ready()
            before, options = (self.steps.targets(c) >= 0 for c in (last.configuration, configuration))
            self._learn_transition(Transition(last.raw, action, raw, before, options, last.cost, cost))

    @abstractmethod
    def _build(self) -> Sequence[torch.nn.Module]:
        """Build the networks, once the width of the inputs is known; they are saved in this order."""

    @abstractmethod
    def _choose(self, inputs: np.ndarray, options: np.ndarray, *, explore: bool) -> int:
        """Choose an action that is an option.

        Args:
            inputs: Standardised.   # (width,) float32
            options: At least one.   # (actions,) bool
            explore: Whether randomness may be drawn.
        """

    @abstractmethod
    def _learn_transition(self, transition: Transition) -> None:
        """Learn from a step that was taken."""

    def _best_unmeasured(self, state: State, allowed: np.ndarray) -> int:
        return (
            self._step(state, allowed, explore=False)
            if self._built
            else super()._best_unmeasured(state, allowed)
        )

    def _step(self, state: State, allowed: np.ndarray, *, explore: bool) -> int:
        targets, options = self.steps.options(state.configuration, allowed)
        if not options.any():
            return int(allowed[np.argmin(self.space.distances(state.configuration)[allowed])])
        cost = self._last.cost if self._last is not None else 1.0
        raw = self.inputs.raw(state, cost)
        self._ready()
        target = targets[self._choose(self.inputs.standardised(raw), options, explore=explore)]
        # The allowed number may be another than the one that stands for all equal in effect.
        return int(allowed[self.space.canonical[allowed] == target][0])

    def _ready(self) -> None:
        if not self._built:
            self._networks = self._build()
            self._built = True

    def _descend(self, loss: torch.Tensor) -> None:
        """Take one step of the optimizer."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's is unannotated
        self._optimizer.step()

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = self.inputs.arrays() if self._built else {}
        for number, network in enumerate(self._networks if self._built else ()):
            for name, tensor in network.state_dict().items():
                arrays[f"network_{number}_{name}"] = tensor.numpy()
        return arrays

    def _restore(self, arrays: StoredArrays) -> None:
        import torch

        super()._restore(arrays)
        if "input_counts" not in arrays:
            return
        self.inputs.restore(arrays)
        self._ready()
        for number, network in enumerate(self._networks):
            stored = {}
            for name, tensor in network.state_dict().items():
                array = arrays.take(f"network_{number}_{name}", tuple(tensor.shape))
                if not np.isfinite(array).all():
                    raise ValueError("a network has weights that are not finite")
                stored[name] = torch.from_numpy(array)
            network.load_state_dict(stored)


def build_network(
    inputs: int, hidden: Sequence[int], outputs: int, *, activation: str, seed: int
) -> torch.nn.Sequential:
    """Build a multilayer perceptron whose weights depend on the seed alone.

    Args:
        inputs: Width of the input.
        hidden: Units per hidden layer.
        outputs: Width of the linear output.
        activation: Name of a class of ``torch.nn``, after every hidden layer.
        seed: Of the weights.
    """
    import torch

    # More threads only wait for each other on such small matrices; the cores are the server's.
    torch.set_num_threads(1)
    widths = [inputs, *hidden]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[torch.nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            layers += [torch.nn.Linear(fan_in, fan_out), getattr(torch.nn, activation)()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], outputs))
