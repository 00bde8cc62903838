"""Notices that the model or the machine has changed: configurations no longer cost what they used to.

Beyond the paper. Of every configuration that was measured before it is known what to expect. Page's test
(E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954) sums up by how many standard deviations the
logarithm of the cost missed that, less an allowance, in either direction; a sum above the threshold is a
change, and the sum's last start is when it happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DriftDetector", "DriftParameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftParameters:
    """How sensitive the test is."""

    allowance: float = 0.75
    """Standard deviations that a window may miss by without counting."""
    threshold: float = 8.0
    """Sum above which the machine has changed; false alarms become rarer exponentially with it."""
    largest: float = 4.0
    """Standard deviations that one window counts at most: a single one is no change."""

    def __post_init__(self) -> None:
        if not (self.allowance >= 0 and self.threshold > self.largest > self.allowance):
            raise ValueError(f"`threshold > largest > allowance >= 0` must hold, but got {self}")


@dataclass(slots=True)
class DriftDetector:
    """The two sums of Page's test.

    Life: :meth:`add` after every window whose cost was foretold; having told of a change it begins anew.
    """

    parameters: DriftParameters = field(default_factory=DriftParameters)
    above: float = 0.0
    """Sum of what was dearer than foretold."""
    below: float = 0.0
    """Sum of what was cheaper."""
    above_since: int = 0
    """The window with which that sum left 0."""
    below_since: int = 0
    """The same of the other."""

    def add(self, missed: float, window: int) -> int | None:
        """Take in one window.

        Args:
            missed: Logarithm of the cost less what was foretold, in standard deviations.
            window: Its number.

        Returns:
            None, or the window since which the machine has been another.
        """
        p = self.parameters
        step = max(-p.largest, min(missed, p.largest))
        if self.above == 0.0:
            self.above_since = window
        if self.below == 0.0:
            self.below_since = window
        self.above = max(0.0, self.above + step - p.allowance)
        self.below = max(0.0, self.below - step - p.allowance)
        if max(self.above, self.below) <= p.threshold:
            return None
        since = self.above_since if self.above > self.below else self.below_since
        self.above = self.below = 0.0
        return since
