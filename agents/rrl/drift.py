"""Notices that the model or the machine has changed: configurations no longer cost what they used to.

Beyond the paper. For a configuration measured before, the perception predicts the next cost. Page's test
(CUSUM; E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954) sums up the errors of these
predictions, in standard deviations of the cost's logarithm and less an allowance, in either direction. A sum
above the threshold is a change, and the change happened when the sum last left 0: that is where an era ends
and the next begins.

Why errors are summed: one window may be far off by chance, but only a change puts many windows off to the
same side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DriftDetector", "DriftParameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftParameters:
    """How sensitive the test is."""

    allowance: float = 0.75
    """Standard deviations of error that do not count: about as much as an unchanged server shows."""
    threshold: float = 8.0
    """Sum above which the machine has changed; false alarms become exponentially rarer with it."""
    largest: float = 4.0
    """Standard deviations that one window counts at most, less than the threshold: one alone is no change."""

    def __post_init__(self) -> None:
        if not (self.allowance >= 0 and self.threshold > self.largest > self.allowance):
            raise ValueError(f"`threshold > largest > allowance >= 0` must hold, but got {self}")


@dataclass(slots=True)
class DriftDetector:
    """The two sums of Page's test.

    Life: :meth:`add` after every window whose cost was predicted. After a change both sums start again at 0.
    """

    parameters: DriftParameters = field(default_factory=DriftParameters)
    above: float = 0.0
    """Sum of errors of windows that were dearer than predicted."""
    below: float = 0.0
    """Sum of errors of windows that were cheaper."""
    above_since: int = 0
    """The window with which ``above`` left 0."""
    below_since: int = 0
    """The window with which ``below`` left 0."""

    def add(self, error: float, window: int) -> int | None:
        """Take in one window.

        Args:
            error: Logarithm of the cost less the predicted one, in standard deviations.
            window: Its number.

        Returns:
            None, or the first window after the change.
        """
        p = self.parameters
        step = max(-p.largest, min(error, p.largest))
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
