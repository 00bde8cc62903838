"""The environment over any backend: knobs out, measurement in, an objective in between."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Protocol, SupportsFloat

import gymnasium as gym
import numpy as np

from tuner.adapters import ApplyReport, Backend
from tuner.duration import format_duration
from tuner.envs.picture import WINDOWS, draw_picture
from tuner.errors import AdapterError, InvalidInput
from tuner.knobs import KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective
from tuner.option import is_number

__all__ = ["FEATURES", "GPU", "WORST_REWARD", "Levels", "Plant", "Remade", "ServingEnv", "Window", "measure"]

WORST_REWARD = -50.0
"""The lowest reward; also that of a window without one answered request, and of a failed backend."""
UNKNOWN = -1.0
"""Stands in an observation for what was not measured."""
FEATURES = (  # name, lowest, highest; what lies beyond is clipped
    ("rate", 0.0, 20.0),
    ("latency", 0.0, 20.0),
    ("mean", 0.0, 20.0),
    ("queue", 0.0, 1.0),
    ("batch", 0.0, 10.0),
    ("cpu", 0.0, 1.0),
    ("foreign", 0.0, 1.0),
    ("burstiness", 0.0, 10.0),
)
GPU = ("gpu", 0.0, 1.0)
"""The feature that environments with :attr:`ServingEnv.observes_gpu` observe after :data:`FEATURES`."""


class Levels(Protocol):
    """Turns a rate into a load level, like :class:`tuner.agents.load_levels.LoadLevels`."""

    def level(self, rate: float, previous: int | None = None, *, foreign: float = math.nan) -> int:
        """Return the level of a rate in requests/s beside foreign processes that take a share of the machine.

        ``previous`` is kept near its border.
        """


@dataclass(frozen=True, kw_only=True)
class Plant:
    """The plant that an environment controls: a backend, and the function that measures a window of it."""

    backend: Backend
    measure: Callable[[float, float], Measurement]
    """Measure a window: seconds, and seconds to settle before it."""
    close: Callable[[], None]
    """Close everything that was opened."""


class Window(NamedTuple):
    """A window about to be measured."""

    plant: Plant
    report: ApplyReport
    """What the change before it did."""
    seconds: float


def measure(window: Window) -> Measurement:
    """Let the change settle, and measure."""
    return window.plant.measure(window.seconds, window.report.settle)


class Remade:
    """An environment that can be pickled: unpickling makes it again, as it was before its first reset."""

    render_mode: str | None = None
    made_by: Callable[[], Remade] | None = None
    """Makes it again; None if it was not made by one of the package's functions."""

    def render_as(self, mode: str | None) -> None:
        """Let :meth:`render` answer in a mode; None lets it answer nothing."""
        self.render_mode = mode

    def __reduce__(self) -> tuple[Callable[[], Remade], tuple[()]]:
        if self.made_by is None:
            raise TypeError(f"{type(self).__name__} was not made by gymnasium.make, so it cannot be pickled")
        return self.made_by, ()


class ServingEnv(Remade, gym.Env[np.ndarray, np.int64]):
    """A model server; an agent sets its knobs between windows.

    ## Action
    ``Discrete(space.size)``: the number of the configuration for the next window.

    ## Observation
    ``Box(float32)`` of the last window; values are clipped to the bounds, -1 stands for not measured.

    | # | name | meaning | low | high |
    |---|---|---|---|---|
    | 0 | rate | log2(1 + arrival rate in requests/s) | 0 | 20 |
    | 1 | latency | the statistic that the SLO bounds, over the SLO | 0 | 20 |
    | 2 | mean | mean latency over the SLO | 0 | 20 |
    | 3 | queue | queueing share of the time in the server | 0 | 1 |
    | 4 | batch | log2 of rows per execution | 0 | 10 |
    | 5 | cpu | cores used by the server over the machine's | 0 | 1 |
    | 6 | foreign | cores used by other processes over the machine's | 0 | 1 |
    | 7 | burstiness | index of dispersion of arrivals | 0 | 10 |
    | 8 | gpu | share of the GPUs' time in use; where ``observes_gpu`` only | 0 | 1 |
    | 8.., 9.. | one per knob | step on its grid, 0 the lowest, 1 the highest | 0 | 1 |

    ## Reward
    ``objective.reward`` of the window, at least -50. A window without requests earns 0, one with requests but
    without answers -50. If there were answers, but a quantity that the objective needs is missing or
    infinite, the reward is -50, because libraries need a number, and ``info["cost"]`` is NaN: nothing should
    be learned from that window.

    ## Step
    Apply the configuration, let it settle, measure a window of ``window`` seconds. ``info`` holds
    ``measurement``, ``configuration`` (what the server runs), ``cost`` (the negated reward; NaN if it is not
    known), ``disturbed`` (reasons not to learn from it) and, if ``levels`` was given, ``level``.

    An action outside the space is refused (``InvalidInput``, a ``ValueError``), and nothing is applied.

    ## Rendering
    ``render_mode="ansi"``: the last window as a line of text. ``"rgb_array"``: a picture of the last windows
    (:mod:`tuner.envs.picture`).

    ## Start
    The default configuration, or the one whose number is ``options["configuration"]``; one window is
    measured for the first observation.

    ## End
    Never terminated. Truncated after ``episode_windows`` steps, and when the backend fails: then the reward
    is -50, the observation the last one, and ``info["error"]`` says why (``measurement`` is the last one).

    ## Version history
    v0: first.

    Args:
        open_plant: Opens the plant, given the environment's generator. Called at each reset if ``fresh``,
            else once.
        space: The knobs; those of the plant's backend.
        objective: What to minimise.
        window: Length of a window, s.
        episode_windows: Steps per episode.
        fresh: Whether each reset opens a new plant (simulation) or keeps the old one (live).
        levels: Names load levels for ``info["level"]``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - gymnasium's own declaration
    observes_gpu: ClassVar[bool] = False
    """Whether the use of the GPUs is part of the observation."""
    knows_costs: ClassVar[bool] = False
    """Whether :meth:`expected_costs` returns costs rather than raises."""

    def __init__(
        self,
        open_plant: Callable[[np.random.Generator], Plant],
        space: KnobSpace,
        objective: Objective,
        *,
        window: float = 5.0,
        episode_windows: int = 50,
        fresh: bool = True,
        levels: Levels | None = None,
    ) -> None:
        if not (is_number(window) and 0 < window < math.inf):
            raise InvalidInput("window", f"{window!r} is not a positive number of seconds")
        whole = is_number(episode_windows) and isinstance(episode_windows, Integral)
        if not (whole and episode_windows >= 1):
            problem = f"{episode_windows!r} is not a whole number of at least 1"
            raise InvalidInput("episode_windows", problem)
        self._open_plant = open_plant
        self.space = space
        self.objective = objective
        self._window = window
        self._episode_windows = episode_windows
        self._fresh = fresh
        self._levels = levels
        self._plant: Plant | None = None
        self._windows = 0
        self._level: int | None = None
        self._report: ApplyReport | None = None
        self._last: Measurement | None = None
        self._observation = np.empty(0, np.float32)
        self._ratios: deque[float] = deque(maxlen=WINDOWS)
        count = len(space.names)
        shown = (*FEATURES, GPU) if self.observes_gpu else FEATURES
        self._lowest = np.array([lowest for _, lowest, _ in shown])
        self._highest = np.array([highest for _, _, highest in shown])
        self._features = space.features()
        self._default = space.encode(space.default)
        self._applied = self._default, space.default
        low = np.full(len(shown) + count, UNKNOWN, np.float32)
        high = np.array([*self._highest, *[1.0] * count], np.float32)
        self.action_space = gym.spaces.Discrete(space.size)
        self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def backend(self) -> Backend | None:
        """The backend of the plant; None before the first reset and after closing."""
        return self._plant.backend if self._plant else None

    def expected_costs(self, rate: float) -> np.ndarray:  # noqa: ARG002 - what simulations override
        """Return the mean cost of a window under every configuration, without costs of changes.   # (size,).

        Args:
            rate: The offered load, requests/s; rounded to a grid of 5 %.

        Raises:
            InvalidInput: It is not known, as for a live server, a cluster or a `sim://` target.
        """
        fix = "use tuner/TritonCPU-v0, tuner/TFServingCPU-v0 or tuner/TFServingGPU-v0"
        raise InvalidInput("env", "its exact costs are not known", fix)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode.

        Raises:
            InvalidInput: ``options["configuration"]`` is the number of none; the episode before goes on.
            AdapterError: The backend cannot be reached or refuses the first configuration.
        """
        return self.end_reset(measure(self.begin_reset(seed=seed, options=options)))

    def step(self, action: np.int64) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Run one window; see the class for what comes back."""
        try:
            return self.end_step(measure(self.begin_step(action)))
        except AdapterError as error:
            return self.fail_step(error)

    def render(self) -> Any:
        """Return the last window as text or as a picture, as ``render_mode`` says; None without one."""
        if self.render_mode is None or self._last is None:
            return None
        if self.render_mode == "rgb_array":
            return draw_picture(list(self._ratios), self._features[self._applied[0]].tolist())
        m, slo = self._last, self.objective.slo
        latency, bound = format_duration(self.objective.latency(m)), format_duration(slo.latency)
        return (
            f"window {self._windows}: {m.arrival_rate:.0f} requests/s, {slo.statistic} {latency} of {bound}, "
            f"cost {self._cost(m):.2f}, {self.space.format(m.configuration)}"
        )

    def close(self) -> None:
        """Close the plant. May be called twice."""
        plant, self._plant = self._plant, None
        if plant is not None:
            plant.close()

    # `reset` and `step` in two halves each, before and after the window is measured: the vector form measures
    # the windows of many environments at once, in between.

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Window:
        """Open the plant for an episode and apply the first configuration; return the window to measure."""
        given = (options or {}).get("configuration")
        number = self._default if given is None else self.number_of(given, "options['configuration']")
        super().reset(seed=seed)
        if self._fresh:
            self.close()
        if self._plant is None:
            self._plant = self._open_plant(self.np_random)
        self._windows, self._level = 0, None
        self._ratios.clear()
        return self._apply(number)

    def end_reset(self, measured: Measurement) -> tuple[np.ndarray, dict[str, Any]]:
        """Return what `reset` returns, given the measurement of that window."""
        measurement, cost = self._take(measured)
        return self._observation, self._info(measurement, cost)

    def begin_step(self, action: np.int64) -> Window:
        """Apply an action; return the window to measure.

        Raises:
            InvalidInput: There is no such action.
            ResetNeeded: No episode is under way: there was no reset, or the environment was closed since.
            AdapterError: The backend failed: see :meth:`fail_step`.
        """
        number = self.number_of(action)
        self._windows += 1
        return self._apply(number)

    def number_of(self, action: Any, setting: str = "action") -> int:
        """Return the number of the configuration that an action means.

        Args:
            action: A whole number; it may be one of numpy.
            setting: What the caller knows it by.

        Raises:
            InvalidInput: The action means none.
        """
        try:
            number = operator.index(action)
        except TypeError:
            number = -1
        if not 0 <= number < self.space.size:
            problem = f"{action} is not a whole number in 0..{self.space.size - 1}"
            raise InvalidInput(setting, problem, "it is the number of a configuration, see `space`")
        return number

    def end_step(self, measured: Measurement) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return what `step` returns, given the measurement of that window."""
        measurement, cost = self._take(measured)
        truncated = self._windows >= self._episode_windows
        reward = WORST_REWARD if math.isnan(cost) else -cost
        return self._observation, reward, False, truncated, self._info(measurement, cost)

    def fail_step(self, error: AdapterError) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return what `step` returns if the backend failed: the episode is truncated."""
        assert self._last is not None, "call reset first"
        info = self._info(self._last, -WORST_REWARD) | {"error": str(error) or type(error).__name__}
        return self._observation.copy(), WORST_REWARD, False, True, info

    def _apply(self, number: int) -> Window:
        if self._plant is None:
            raise gym.error.ResetNeeded("no episode is under way: call reset first")
        self._applied = number, self.space.decode(number)
        self._report = self._plant.backend.apply(self._applied[1])
        return Window(self._plant, self._report, self._window)

    def _take(self, measured: Measurement) -> tuple[Measurement, float]:
        """Observe a measurement, and its load level.

        Returns:
            The measurement, with what the change before it cost its requests; and its cost.
        """
        assert self._report is not None
        measurement = self._last = self._report.noted(measured)
        self._observation = self._observe(measurement)
        self._ratios.append(self.objective.latency(measurement) / self.objective.slo.latency)
        if self._levels is not None:
            self._level = self._levels.level(
                measurement.arrival_rate, self._level, foreign=measurement.foreign_share
            )
        return measurement, self._cost(measurement)

    def _cost(self, measurement: Measurement) -> float:
        """Return the cost of a window, at most 50; NaN if it cannot be known."""
        if measurement.arrival_rate == 0:
            return 0.0
        cost = self.objective.cost(measurement)
        if math.isfinite(cost):
            return min(cost, -WORST_REWARD)
        return math.nan if measurement.requests else -WORST_REWARD  # no answers: nothing to measure

    def _info(self, measurement: Measurement, cost: float) -> dict[str, Any]:
        info = {
            "measurement": measurement,
            "configuration": measurement.configuration,
            "cost": cost,
            "disturbed": measurement.disturbed,
        }
        return info if self._level is None else info | {"level": self._level}

    def _observe(self, m: Measurement) -> np.ndarray:
        slo, cores = self.objective.slo.latency, self.objective.cores
        in_server = m.queue_mean + m.compute_mean
        values = (
            math.log2(1.0 + m.arrival_rate),
            self.objective.latency(m) / slo,
            m.latency_mean / slo,
            m.queue_mean / in_server if in_server > 0 else math.nan,
            math.log2(m.batch_mean) if m.batch_mean > 0 else math.nan,
            m.cpu / cores,
            m.foreign_cpu / cores,
            m.burstiness,
            *([m.gpu] if self.observes_gpu else []),
        )
        known = np.where(np.isnan(values), UNKNOWN, np.clip(values, self._lowest, self._highest))
        number, applied = self._applied
        if m.configuration is not applied:  # read back from a server, which may run something else
            number = self.space.encode(self.space.nearest(m.configuration))
        return np.concatenate((known, self._features[number])).astype(np.float32)
