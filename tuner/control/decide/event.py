"""The events that the control loop observes: windows, changes of the server, failures, orders."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.control.decide.decision import Apply, Rollback
from tuner.control.decide.orders import Orders
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import Measurement

__all__ = [
    "Away",
    "Changed",
    "Disproved",
    "Event",
    "Failed",
    "InForce",
    "Ordered",
    "Overtaken",
    "Remembered",
    "Unseen",
    "WindowEnded",
]


@dataclass(frozen=True, slots=True)
class WindowEnded:
    """A window was measured."""

    now: float
    """The time of the decision on the measurement's clock, s."""
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Unseen:
    """There is no window: the server, or what measures it, did not answer."""

    running: Configuration
    """What the server runs now."""
    reason: str
    """Why nothing was measured."""


@dataclass(frozen=True, slots=True)
class Away:
    """The server was away and is back."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The server was changed by the driver."""

    now: float
    """s."""
    cost: ApplyCost
    """What kind of change it was."""


@dataclass(frozen=True, slots=True)
class InForce:
    """What was decided is in force."""

    previous: Configuration
    """What the server ran before."""
    back: bool = False
    """Whether it was a rollback: then what ran before was bad, and what runs now needs no probation."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Somebody else changed the server: what was on probation is no longer ours to judge."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A change did not come about."""

    decision: Apply | Rollback
    refused: bool = True
    """Whether the server refused it and still runs what it ran; otherwise nothing is certain."""


@dataclass(frozen=True, slots=True)
class Disproved:
    """A change was tried on one replica, found bad, and undone."""

    decision: Apply | Rollback


@dataclass(frozen=True, slots=True)
class Ordered:
    """The operator's orders were read."""

    orders: Orders


@dataclass(frozen=True, slots=True)
class Remembered:
    """A window of an earlier life of the process."""

    level: int
    """The load level it was measured under."""
    configuration: Configuration
    cost: float
    """Finite."""
    kept: bool
    """Whether it kept the SLO."""
    learn: bool = True
    """Whether the agent has yet to learn from it."""


Event = (
    WindowEnded | Unseen | Away | Changed | InForce | Overtaken | Failed | Disproved | Ordered | Remembered
)
