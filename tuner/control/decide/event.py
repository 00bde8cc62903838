"""The events that the control loop observes: windows, changes of the server, failures, orders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from tuner.control.decide.decision import Apply, Rollback
from tuner.control.decide.orders import Orders
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import Measurement

__all__ = [
    "Event",
    "Failed",
    "InForce",
    "Ordered",
    "Remembered",
    "Undone",
    "Unseen",
    "WindowEnded",
]


class WindowEnded(NamedTuple):
    """A window was measured."""

    now: float
    """The time of the decision on the measurement's clock, s."""
    measurement: Measurement


class Unseen(NamedTuple):
    """There is no window: the server, or what measures it, did not answer."""

    running: Configuration
    """What the server runs now."""
    reason: str
    """Why nothing was measured."""
    overdue: bool = False
    """Whether a window should have ended a while ago."""


class InForce(NamedTuple):
    """What was decided is in force."""

    previous: Configuration | None
    """What the server ran before; None if it ran the same, but for replicas that had come apart."""
    back: bool = False
    """Whether it was a rollback: then what ran before was bad, and what runs now needs no probation."""
    now: float = math.nan
    """When the server was changed, s."""
    cost: ApplyCost | None = None
    """What kind of change it was; None if it is counted already."""
    judged: bool = False
    """Whether earlier windows have judged what runs now: then it needs no probation."""
    restores: bool = False
    """Whether what the server had lost was put back."""


class Undone(NamedTuple):
    """The server no longer runs what it ran: it was restarted, or somebody else has changed it."""

    configuration: Configuration
    """What it ran before."""


class Failed(NamedTuple):
    """A change did not come about."""

    decision: Apply | Rollback
    refused: bool = True
    """Whether the server refused it and still runs what it ran; otherwise nothing is certain."""
    tried: bool = False
    """Whether a trial on one replica spoke against it: then the server is not to blame."""


class Ordered(NamedTuple):
    """The operator's orders were read."""

    orders: Orders


class Remembered(NamedTuple):
    """A window of an earlier life of the process."""

    level: int
    """The load level it was measured under."""
    configuration: Configuration
    cost: float
    """Finite."""
    probability_kept: float
    """The probability that it kept the SLO."""
    learn: bool = True
    """Whether the agent has yet to learn from it."""
    rate: float | None = None
    """The load, requests/s, over all windows that belonged to it; None takes the middle of its level."""
    seen: Mapping[str, float] | None = None
    """What it showed beside its cost, by the names of the quantities (:meth:`Measurement.figures`)."""
    counts: bool = True
    """Whether the search and the error budget count it: not if another objective was pursued then."""


class Banned(NamedTuple):
    """An earlier life of the process has banned a configuration, which still stands."""

    level: int | None
    """The load level under which it is banned; None if under every load."""
    configuration: Configuration
    windows: int
    """For how many windows more; 0 if it only counts how often it was banned."""
    times: int
    """How often it was banned in a row."""


Event = WindowEnded | Unseen | InForce | Undone | Failed | Ordered | Remembered | Banned
