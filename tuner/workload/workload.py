"""What a workload is: the offered rate of every window of an episode, named, seeded, written in a line."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tuner.errors import InvalidInput

__all__ = ["FASTEST", "LEAST", "SETTING", "Workload", "parameter"]

SETTING = "--workload"
LEAST = 0.01
"""Least rate of a window, relative to the nominal one: there is always a next request to wait for."""
FASTEST = 100_000.0
"""Requests/s above which a rate is taken for a mistake."""


def parameter(default: float, about: str, *, least: float = 0.0, most: float = math.inf) -> Any:
    """Return a dataclass field that specs can set.

    Args:
        default: Its value if the spec does not set it.
        about: What it means, in a few words; `tuner workload list` shows them.
        least: The smallest value there may be.
        most: The largest.
    """
    return dataclasses.field(default=default, metadata={"about": about, "least": least, "most": most})


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """The load of an episode, window by window.

    Times among its parameters are shares of the episode; rates are relative to the nominal one.

    Life: made once from a spec and a nominal rate (:func:`tuner.workload.workload`), asked for the rates
    of each episode. It prints as the spec that makes it again, so that two plain values, the text and the
    nominal rate, are all there is to store.

    Raises:
        InvalidInput: The rate or a parameter is out of its range.
    """

    name: ClassVar[str]
    """What it is called in a spec."""
    about: ClassVar[str]
    """What it is like, in a line."""
    takes_file: ClassVar[bool] = False
    """Whether it has a field ``file``, which a spec begins with."""

    rate: float
    """The nominal rate, requests/s."""
    burstiness: float = parameter(
        1.0, "shape of the gamma distributed gaps: 1 Poisson, below 1 bursts", least=0.001
    )

    def __post_init__(self) -> None:
        if not 0 < self.rate <= FASTEST:
            raise InvalidInput("--rate", f"{self.rate:g} requests/s is not between 0 and {FASTEST:g}")
        for field in dataclasses.fields(self):
            if "least" not in field.metadata:
                continue
            value, least, most = getattr(self, field.name), field.metadata["least"], field.metadata["most"]
            if not least <= value <= most:
                problem = f"{field.name}={value:g} is not between {least:g} and {most:g}"
                raise InvalidInput(f"{SETTING} {self.name}", problem, field.metadata["about"])

    def __str__(self) -> str:
        written = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in self.parameters()
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}:{','.join(written)}" if written else self.name

    @classmethod
    def parameters(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the parameters that a spec may set, those of the kind first."""
        own = [field for field in dataclasses.fields(cls) if "about" in field.metadata]
        return tuple(sorted(own, key=lambda field: field.name == "burstiness"))

    def rates(self, windows: int, generator: np.random.Generator) -> np.ndarray:
        """Return the mean rate of each window of an episode, at least 1 % of the nominal one.

        The same seed gives the same rates; a workload without anything random draws nothing.

        Args:
            windows: Length of the episode, at least 1.
            generator: Source of randomness.

        Returns:
            Requests/s.   # (windows,)
        """
        if windows < 1:
            raise ValueError(f"`windows >= 1` must hold, but got {windows=}")
        return np.asarray(self.rate * np.maximum(self.relative(windows, generator), LEAST))

    @abstractmethod
    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:
        """Return the rates relative to the nominal one; what is below 1 % is raised to it.   # (windows,)."""


def middles(windows: int) -> np.ndarray:
    """Return the middle of each window as a share of the episode.   # (windows,) 0..1."""
    return np.asarray((np.arange(windows) + 0.5) / windows)
