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

__all__ = ["EpisodeBegin", "Event", "Notice", "TrainingWindow", "episode_seed", "learn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeBegin:
    """An episode of the environment began."""

    state: State
    """What the agent was told before it first chose."""


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
    """Whether the agent was told; disturbed windows and failures are not learned from."""
    ended: bool = False
    """Whether it was the last of its episode."""
    rate: float | None = None
    """The arrival rate that was measured, requests/s."""
    observation: np.ndarray | None = field(default=None, compare=False)
    """The environment's observation.   # (n,) float32."""
    figures: Mapping[str, float] = field(default_factory=dict, compare=False)
    """What else was noted of it."""

    @property
    def state(self) -> State:
        """The state that the window left behind."""
        return State(
            level=self.level,
            configuration=self.configuration,
            rate=self.rate,
            observation=self.observation,
        )


Event = EpisodeBegin | TrainingWindow
"""What happens in training, in its order."""
Notice = Callable[[int, Mapping[str, Any]], Mapping[str, float]]
"""Told the configuration and the ``info`` of a window, returns figures to keep of it."""


def learn(
    env: gym.Env[Any, Any],
    agent: Agent,
    windows: int,
    *,
    seed: int | None = None,
    start: int = 0,
    past: Sequence[Event] = (),
    notice: Notice | None = None,
    record: Callable[[Event], None] | None = None,
    progress: Callable[[], None] | None = None,
) -> list[TrainingWindow]:
    """Let an agent choose and learn for a number of windows.

    The environment's action is the number of a configuration, its reward the negated cost; ``info`` holds
    ``level`` and may hold ``cost`` (NaN if it could not be measured, whatever the reward), ``disturbed``
    (reasons not to learn), ``error`` (the backend failed) and ``measurement`` (a window in which nothing was
    asked has nothing to teach). When an episode ends, the
    next begins; the agent keeps what it knows.

    Training that was interrupted goes on from its events: the agent lives through them again without the
    environment, which only repeats the windows of the episode that was under way, and the last one alone if
    it can ``skip`` others. With the same seeds the end is the same as without the interruption.

    Args:
        env: For instance ``tuner/TritonCPU-v0``.
        agent: It is changed.
        windows: How many, at least 0, those of the past included.
        seed: Of the environment: its first episode; the seeds of the others follow from it.
        start: Number of the configuration in force after a reset, if ``info`` does not tell.
        past: What happened before, as ``record`` was told it.
        notice: What else to keep of each window.
        record: Told every event as it happens.
        progress: Called after each window, those of the past included.

    Returns:
        One entry per window.

    Raises:
        KeyError: ``info`` has no ``level``: the environment was made without load levels.
        StorageError: The agent or the environment do not repeat the past: the program has changed.
        AdapterError: The backend of a live environment cannot be reached at a reset.
    """
    lesson = _Lesson(env, agent, seed, start, notice)
    history: list[TrainingWindow] = []
    for event in past:
        if isinstance(event, TrainingWindow):
            history.append(event)
        lesson.relive(event)
        if progress is not None and isinstance(event, TrainingWindow):
            progress()
    if len(history) < windows:
        lesson.catch_up()
    while len(history) < windows:
        begin, window = lesson.turn(len(history))
        history.append(window)
        if record is not None:
            if begin is not None:
                record(begin)
            record(window)
        if progress is not None:
            progress()
    return history


def episode_seed(seed: int | None, episode: int) -> int | None:
    """Return the seed of an episode: the first has the environment's own."""
    if seed is None or episode == 0:
        return seed
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


class _Lesson:
    """An agent in an environment, window by window."""

    def __init__(
        self, env: gym.Env[Any, Any], agent: Agent, seed: int | None, start: int, notice: Notice | None
    ) -> None:
        self.env = env
        self.agent = agent
        self.seed = seed
        self.start = start
        self.notice = notice
        self.state: State | None = None
        """None between episodes."""
        self.episodes = 0
        self.relived: list[TrainingWindow] = []
        """Windows of the present episode that the environment has not seen."""

    def turn(self, window: int) -> tuple[EpisodeBegin | None, TrainingWindow]:
        """Run one window, and begin an episode before it if none is under way."""
        begin = None
        if self.state is None:
            observation, info = self.env.reset(seed=episode_seed(self.seed, self.episodes))
            number = _number(self.env, info, self.start)
            begin = EpisodeBegin(
                state=State(
                    level=info["level"],
                    configuration=number,
                    rate=_rate(info),
                    observation=observation,
                )
            )
            self._enter(begin)
        assert self.state is not None
        action = self.agent.select(self.state)
        observation, reward, terminated, truncated, info = self.env.step(action)
        cost = _cost(reward, info)
        found = TrainingWindow(
            window=window,
            level=info["level"],  # the window's own: the load may have changed since the agent chose
            configuration=action,
            cost=cost,
            learned=_teaches(cost, info),
            ended=terminated or truncated,
            rate=_rate(info),
            observation=observation,
            figures=self.notice(action, info) if self.notice is not None else {},
        )
        self._learn(found)
        return begin, found

    def relive(self, event: Event) -> None:
        """Let the agent live through what happened before."""
        if isinstance(event, EpisodeBegin):
            self._enter(event)
            self.relived = []
            return
        assert self.state is not None, "an episode begins before its windows"
        action = self.agent.select(self.state)
        if action != event.configuration:
            raise _changed(event, f"the agent chooses {action}, not {event.configuration}")
        self._learn(event)
        self.relived.append(event)

    def catch_up(self) -> None:
        """Bring the environment to where the agent is.

        One whose windows stand alone can ``skip`` them all but the last, which shows that it is the same.
        """
        if self.state is None or not self.episodes:
            return
        self.env.reset(seed=episode_seed(self.seed, self.episodes - 1))
        left = self.relived
        if len(left) > 1 and self.env.has_wrapper_attr("skip"):
            before = left[-2]
            self.env.get_wrapper_attr("skip")(len(left) - 1, before.configuration, before.level)
            left = left[-1:]
        for window in left:
            _, reward, _, _, info = self.env.step(window.configuration)
            cost = _cost(reward, info)
            if cost != window.cost and not (math.isnan(cost) and math.isnan(window.cost)):
                raise _changed(window, f"it costs {cost:.6g}, not {window.cost:.6g}")

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
        f"window {window.window} does not repeat itself: {problem}; what was recorded is of another version: "
        "begin anew in another folder"
    )


def _cost(reward: SupportsFloat, info: Mapping[str, Any]) -> float:
    """The cost of a window; NaN stands for whatever is no number to learn from.

    Rewards are numbers even where nothing was measured: what ``info`` says of the cost comes first.
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
    """The arrival rate that was measured, requests/s; None if there was none."""
    measurement = info.get("measurement")
    rate = 0.0 if measurement is None else float(measurement.arrival_rate)
    return rate if rate > 0 else None


def _number(env: gym.Env[Any, Any], info: dict[str, Any], start: int) -> int:
    """The number of the configuration in force, as ``info`` tells it."""
    configuration = info.get("configuration")
    if configuration is None:
        return start
    if isinstance(configuration, int):
        return configuration
    space = env.get_wrapper_attr("space")
    return int(space.encode(space.nearest(configuration)))
