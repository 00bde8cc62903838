"""An agent learns on a live server, window by window, under a load that is announced to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np

from tuner.adapters import Backend
from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.agents.training import Callbacks, learn
from tuner.envs.serving import Plant, ServingEnv
from tuner.experiments.rrl.prediction import OVERLOAD
from tuner.knobs import Configuration
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.profiler.attachment import Attachment

__all__ = ["LiveWindow", "learn_live"]

RETRIES = 2
"""How often a disturbed window is measured again."""


class LiveWindow(NamedTuple):
    """One window of learning."""

    configuration: Configuration
    """What the agent chose for it."""
    best: Configuration
    """What it holds for the best after it."""
    p95: float
    """Measured, s."""
    kept: bool
    """Whether the SLO was kept."""
    foreign: float
    """Cores that foreign processes used."""
    disturbed: bool
    """Whether they or others disturbed it even when it was measured again."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **self._asdict(),
            "configuration": dict(self.configuration),
            "best": dict(self.best),
        }


def learn_live(
    attachment: Attachment,
    agent: Agent,
    objective: Objective,
    *,
    rate: float,
    windows: int,
    seconds: float,
) -> list[LiveWindow]:
    """Let an agent learn on a server from the first window under a load.

    The server begins under a light load that every configuration bears. The agent is told the load that will
    come, and chooses; only then the load comes. What queues up in one window is still there in the next, as
    with real users.

    Args:
        attachment: The server, with a load of our own that is light as yet.
        agent: What learns.
        objective: What is minimised.
        rate: The load that comes, requests/s.
        windows: How many are measured under it.
        seconds: Length of each.
    """
    space, levels = attachment.space, LoadLevels()

    def open_plant(_: np.random.Generator) -> Plant:
        backend: Backend = attachment.backend
        return Plant(backend=backend, measure=partial(_measure, attachment), close=attachment.restore)

    env = _Announced(
        ServingEnv(
            open_plant, space, objective, window=seconds, episode_windows=windows, fresh=False, levels=levels
        ),
        attachment,
        rate,
    )
    best: list[int] = []
    state = State(level=levels.level(rate), configuration=space.encode(space.default), rate=rate)
    callbacks = Callbacks(
        figures=partial(_figures, objective), progress=lambda: best.append(agent.best(state))
    )
    try:
        history = learn(env, agent, windows, callbacks=callbacks)
    finally:
        env.close()
    return [
        LiveWindow(
            configuration=space.effective(space.decode(window.configuration)),
            best=space.effective(space.decode(number)),
            p95=window.figures["p95"],
            kept=bool(window.figures["kept"]),
            foreign=window.figures["foreign"],
            disturbed=bool(window.figures["disturbed"]),
        )
        for window, number in zip(history, best, strict=True)
    ]


def _measure(attachment: Attachment, duration: float, settle: float) -> Measurement:
    """Measure a window, and again if it was disturbed, unless the server is overloaded anyhow."""
    measurement = attachment.profiler.measure(duration, settle=settle)
    for _ in range(RETRIES):
        if not measurement.disturbed or measurement.latency_p95 > OVERLOAD:
            break
        measurement = attachment.profiler.measure(duration)
    if measurement.latency_p95 > OVERLOAD:  # is learned from, even if our generator lacked a core
        return replace(measurement, disturbed=())
    return measurement


def _figures(objective: Objective, _: int, info: Mapping[str, Any]) -> Mapping[str, float]:
    seen: Measurement = info["measurement"]
    return {
        "p95": seen.latency_p95,
        "kept": float(objective.kept(seen)),
        "foreign": seen.foreign_cpu,
        "disturbed": float(bool(seen.disturbed)),
    }


class _Announced(gym.Wrapper[np.ndarray, np.int64, np.ndarray, np.int64]):
    """Announces a load to the agent at the reset, and offers it from the first step on."""

    def __init__(self, env: ServingEnv, attachment: Attachment, rate: float) -> None:
        super().__init__(env)
        self._attachment = attachment
        self._rate = rate

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Measure a window under the light load, and show the agent the level of the load to come."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, info | {"level": LoadLevels().level(self._rate), "measurement": None}

    def step(self, action: np.int64) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Offer the announced load, and run a window."""
        if self._attachment.rate != self._rate:
            self._attachment.set_rate(self._rate)
        return self.env.step(action)
