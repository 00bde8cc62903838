"""What is known of an experiment before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

__all__ = ["LIVE", "About"]

LIVE = "A live server"
"""The group of the measurements of our own; the others are named by their paper."""


class _Declared(Protocol):
    about: ClassVar[About]


Kind = TypeVar("Kind", bound=type[_Declared])


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What is known of an experiment before it runs; as the decorator of its class, it declares it."""

    name: str
    """Of the command and of the stored result."""
    title: str
    """What it shows, in a line."""
    minutes: float
    """About how long it takes on two cores."""
    paper: str = LIVE
    """Whose table or figure it is. Each of those has a page of its own in the documentation."""
    live: bool = False
    """Whether it measures live servers. Every task then needs the machine to itself, and every row differs
    from run to run."""
    foreign_limit: bool = False
    """Whether it heeds ``--foreign-limit``, which is refused for the others."""
    repeated: bool = True
    """Whether it is repeated for each seed; otherwise nothing in it is random, or once is long enough."""
    by_clock: tuple[str, ...] = ()
    """Patterns of the rows and panels that say how fast a machine was. They differ from run to run."""
    shown: int = 16
    """Most rows that the page of our own measurements shows of it."""

    def __call__(self, kind: Kind) -> Kind:
        """Declare the class of an experiment."""
        kind.about = self
        return kind
