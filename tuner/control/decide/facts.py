"""The facts of one window: everything that the rules decide from, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tuner.control.decide.orders import Orders
from tuner.control.decide.proposal import Proposal
from tuner.knobs import Configuration, KnobSpace

__all__ = ["Facts"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known at the end of a window, or where there should have been one."""

    space: KnobSpace
    orders: Orders
    running: Configuration
    """What the server runs."""
    breaker: str
    """Why nothing may be changed after changes that failed; empty if it may."""
    retreat: Configuration | None
    """Where a change on probation that fails leads back to: what ran before it, or, if that is banned, such
    as because the server refuses it, the best other that keeps the SLO; None without a change."""
    unused: str = ""
    """Why the window says nothing about the configuration, or why there is none; empty if it does."""
    overdue: bool = False
    """Whether a window should have ended a while ago."""
    mean_breaks: str = ""
    """That even the mean latency breaks the SLO while the quantiles look back, in words; else empty."""
    failing: str = ""
    """That more requests failed than before the change that the window judges, and not by chance, or that
    none was answered, in words; else empty."""
    broken: bool = False
    """Whether the window that judges the change surely broke the SLO, given its number of requests."""
    best_good: Configuration | None = None
    """What to go back to: the best other configuration known to keep the SLO under this load that is not
    banned; what ran before the change if all that keep it are."""
    standing: str = ""
    """The window's latency beside the SLO, in words."""
    ask: Callable[[], Proposal] | None = None
    """Asks the agent, which may draw random numbers: only called when a rule needs the proposal."""

    @cached_property
    def proposal(self) -> Proposal:
        """What the agent would have the server run; it is asked once."""
        assert self.ask is not None, "nothing was learned from this window"
        return self.ask()
