"""What the control loop can decide after a window; each decision carries its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN

__all__ = ["Apply", "Decision", "Hold", "Rollback"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """Leave the server as it is."""

    reason: str
    rule: str = field(default="", compare=False)
    """Which rule decided (:mod:`tuner.control.decide.rules`); empty outside the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Apply:
    """Make the server run another configuration."""

    configuration: Configuration
    reason: str
    exploring: bool = False
    """Whether the configuration was drawn to learn from it, not because it is the best known."""
    expected: float = NOT_KNOWN
    """Its learned cost; NaN if nothing is known of it."""
    restores: bool = False
    """Whether it puts back what the server lost by itself, such as over a restart."""
    judged: bool = False
    """Whether earlier windows have judged it: then it is not on probation."""
    rule: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollback:
    """Return to a configuration that was good."""

    configuration: Configuration
    reason: str
    rule: str = field(default="", compare=False)


Decision = Hold | Apply | Rollback
