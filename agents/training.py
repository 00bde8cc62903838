"""Runs an agent in an environment: offline training, and the yardstick of every agent's tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.errors import StorageError

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["SILENT", "Callbacks", "EpisodeBegin", "Event", "TrainingWindow", "episode_seed", "learn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeBegin:
    """An episode of the environment began."""

    state: State
    """The state in which the agent first chose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingWindow:
    """What one window of training showed."""

    window: int
    """Its number, from 0."""
    level: int
    """The load level it was measured under."""
    configuration: int
    """The number of the configuration in force."""
    cost: float
    """Its cost; NaN if nothing was measured."""
    learned: bool
    """Whether the agent learned from it; it does not from disturbed windows and failures."""
    ended: bool = False
    """Whether it was the last of its episode."""
    rate: float | None = None
    """The arrival rate that was measured, requests/s."""
    observation: np.ndarray | None = field(default=None, compare=False)
    """The environment's observation.   # (n,) float32."""
    seen: Mapping[str, float] | None = field(default=None, compare=False)
    """What was measured, by the names of its quantities; None if nothing was."""
    figures: Mapping[str, float] = field(default_factory=dict, compare=False)
    """What the callback of the same name has kept of it."""

    @property
    def state(self) -> State:
        """The state after the window."""
        return State(
            level=self.level,
            configuration=self.configuration,
            rate=self.rate,
            seen=self.seen,
            observation=self.observation,
        )


Event = EpisodeBegin | TrainingWindow
"""What happens in training, in its order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Functions that are called while an agent learns; each does nothing unless it is given."""

    figures: Callable[[int, Mapping[str, Any]], Mapping[str, float]] = lambda configuration, info: {}  # noqa: ARG005
    """Gets the configuration and the ``info`` of each window; returns figures to keep with it."""
    record: Callable[[Event], None] = lambda event: None  # noqa: ARG005
    """Gets every event as it happens, but for those of the past."""
    progress: Callable[[], None] = lambda: None
    """Called after each window, also after those of the past."""


SILENT = Callbacks()


def learn(
    env: gym.Env[Any, Any],
    agent: Agent,
    windows: int,
    *,
    seed: int | None = None,
    start: int = 0,
    past: Sequence[Event] = (),
    callbacks: Callbacks = SILENT,
) -> list[TrainingWindow]:
    """Let an agent choose and learn for a number of windows.

    The environment's action is the number of a configuration, its reward the negated cost; ``info`` holds
    ``level`` and may hold ``cost`` (NaN if it could not be measured, whatever the reward), ``disturbed``
    (reasons not to learn), ``error`` (the backend failed) and ``measurement`` (nothing is learned from a
    window without requests). When an episode ends, the next begins; the agent keeps what it knows.

    Training that was interrupted goes on from its events. The agent chooses and learns from them again,
    without the environment. The environment repeats only the windows of the episode that was under way; if
    it can ``skip`` windows, it repeats only the last one. With the same seeds the end is the same as without
    the interruption.

    Args:
        env: For instance ``tuner/TritonCPU-v0``.
        agent: It is changed.
        windows: How many, at least 0, those of the past included.
        seed: Of the first episode; the seeds of the others follow from it.
        start: Number of the configuration in force after a reset, if ``info`` does not hold it.
        past: The events of an interrupted training, as ``callbacks.record`` got them.
        callbacks: Called as the training goes on.

    Returns:
        One entry per window.

    Raises:
        KeyError: ``info`` has no ``level``: the environment was made without load levels.
        StorageError: The agent or the environment does not repeat the past: the program has changed.
        AdapterError: The backend of a live environment cannot be reached at a reset.
    """
    training = _Training(env, agent, seed, start, callbacks)
    history: list[TrainingWindow] = []
    for event in past:
        training.repeat(event)
        if isinstance(event, TrainingWindow):
            history.append(event)
            callbacks.progress()
    if len(history) < windows:
        training.catch_up()
    while len(history) < windows:
        history.append(training.step(len(history)))
        callbacks.progress()
    return history


def episode_seed(seed: int | None, episode: int) -> int | None:
    """Return the seed of an episode: the first has the environment's own."""
    if seed is None or episode == 0:
        return seed
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


class _Training:
    """An agent that learns in an environment, window by window."""

    def __init__(
        self, env: gym.Env[Any, Any], agent: Agent, seed: int | None, start: int, callbacks: Callbacks
    ) -> None:
        self.env = env
        self.agent = agent
        self.seed = seed
        self.start = start
        self.callbacks = callbacks
        self.state: State | None = None
        """None between episodes."""
        self.episodes = 0
        self.repeated: list[TrainingWindow] = []
        """Windows of the present episode that the environment has not seen."""

    def step(self, number: int) -> TrainingWindow:
        """Run one window, and begin an episode before it if none is under way."""
        begin = self._begin() if self.state is None else None
        assert self.state is not None
        action = self.agent.select(self.state)
        observation, reward, terminated, truncated, info = self.env.step(action)
        cost = _cost(reward, info)
        teaches = _teaches(cost, info)
        window = TrainingWindow(
            window=number,
            level=info["level"],  # the window's own: the load may have changed since the agent chose
            configuration=action,
            cost=cost,
            learned=teaches,
            ended=terminated or truncated,
            rate=_rate(info),
            seen=_seen(info) if teaches else None,
            observation=observation,
            figures=self.callbacks.figures(action, info),
        )
        self._learn(window)
        if begin is not None:
            self.callbacks.record(begin)
        self.callbacks.record(window)
        return window

    def repeat(self, event: Event) -> None:
        """Let the agent choose and learn in an event of the past."""
        if isinstance(event, EpisodeBegin):
            self._enter(event)
            self.repeated = []
            return
        assert self.state is not None, "an episode begins before its windows"
        action = self.agent.select(self.state)
        if action != event.configuration:
            raise _changed(event, f"the agent chooses {action}, not {event.configuration}")
        self._learn(event)
        self.repeated.append(event)

    def catch_up(self) -> None:
        """Bring the environment to where the agent is.

        An environment whose windows do not depend on each other can ``skip`` all but the last. That one is
        run all the same: its cost shows whether the environment is still the one that was recorded.
        """
        if self.state is None or not self.episodes:
            return
        self.env.reset(seed=episode_seed(self.seed, self.episodes - 1))
        left = self.repeated
        if len(left) > 1 and self.env.has_wrapper_attr("skip"):
            before = left[-2]
            self.env.get_wrapper_attr("skip")(len(left) - 1, before.configuration, before.level)
            left = left[-1:]
        for window in left:
            _, reward, _, _, info = self.env.step(window.configuration)
            cost = _cost(reward, info)
            if cost != window.cost and not (math.isnan(cost) and math.isnan(window.cost)):
                raise _changed(window, f"it costs {cost:.6g}, not {window.cost:.6g}")

    def _begin(self) -> EpisodeBegin:
        observation, info = self.env.reset(seed=episode_seed(self.seed, self.episodes))
        begin = EpisodeBegin(
            state=State(
                level=info["level"],
                configuration=_number(self.env, info, self.start),
                rate=_rate(info),
                seen=None if info.get("disturbed") else _seen(info),
                observation=observation,
            )
        )
        self._enter(begin)
        return begin

    def _enter(self, begin: EpisodeBegin) -> None:
        self.state = begin.state
        self.episodes += 1

    def _learn(self, window: TrainingWindow) -> None:
        state = window.state
        if window.learned:
            self.agent.update(state, window.configuration, window.cost, state)
        self.state = None if window.ended else state


def _changed(window: TrainingWindow, problem: str) -> StorageError:
    return StorageError(
        f"window {window.window} does not repeat itself: {problem}; it was recorded by another version: "
        "begin again in another folder"
    )


def _cost(reward: SupportsFloat, info: Mapping[str, Any]) -> float:
    """Return the cost of a window; NaN if it is not known.

    A reward is a number even where nothing was measured, so a cost of NaN in ``info`` overrules it.
    """
    cost = -float(reward)
    return cost if math.isfinite(cost) and math.isfinite(info.get("cost", cost)) else math.nan


def _teaches(cost: float, info: dict[str, Any]) -> bool:
    """Whether a window may be learned from."""
    if not math.isfinite(cost) or cost < 0 or info.get("disturbed") or info.get("error"):
        return False
    measurement = info.get("measurement")
    return measurement is None or measurement.arrival_rate > 0


def _rate(info: dict[str, Any]) -> float | None:
    """Return the arrival rate that was measured, requests/s; None if there was none."""
    measurement = info.get("measurement")
    rate = 0.0 if measurement is None else float(measurement.arrival_rate)
    return rate if rate > 0 else None


def _seen(info: Mapping[str, Any]) -> Mapping[str, float] | None:
    """Return what was measured; None if nothing was."""
    measurement = info.get("measurement")
    return None if measurement is None else measurement.figures()


def _number(env: gym.Env[Any, Any], info: dict[str, Any], start: int) -> int:
    """Return the number of the configuration in force: the one that ``info`` holds, else the start."""
    configuration = info.get("configuration")
    if configuration is None:
        return start
    if isinstance(configuration, int):
        return configuration
    space = env.get_wrapper_attr("space")
    return int(space.encode(space.nearest(configuration)))
