"""What is known of an experiment before it runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIVE", "About"]

LIVE = "A live server"
"""The group of the measurements of our own; the others are named by their paper."""


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What is known of an experiment before it runs."""

    name: str
    title: str
    minutes: float
    """About how long it takes on two cores."""
    paper: str = LIVE
    """Whose table or figure it is. Each of those has a page of its own in the documentation."""
    in_turn: bool = False
    """Whether every task needs the machine to itself; see :meth:`.Experiment.alone`."""
    repeated: bool = True
    """Whether it is repeated for each seed; otherwise nothing in it is random, or once is long enough."""
    by_clock: tuple[str, ...] = ()
    """Patterns of the rows and panels that say how fast a machine was. They differ from run to run."""
    shown: int = 16
    """Most rows that the page of our own measurements shows of it."""
