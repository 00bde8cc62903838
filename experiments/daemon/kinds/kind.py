"""What a kind of fault is: how it is injected, and what is promised of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tuner.experiments.daemon.bed import Bed

__all__ = ["BrokenPromise", "Kind", "expect", "kind"]


class BrokenPromise(Exception):
    """What was promised of a fault did not hold; the message says what was found instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of fault.

    After each fault three more things are checked: clients are served, the daemon knows why the server runs
    what it runs, and every decision but the newest has an end.
    """

    name: str
    promise: str
    """What the daemon does about it."""
    inject: Callable[[Bed, np.random.Generator], str]
    """Injects the fault, waits until it is over, and returns which form it had.

    Raises:
        BrokenPromise: What is promised did not hold.
    """
    after: Callable[[Bed], None]
    """Removes what the fault left behind, when it was judged."""


def kind(
    name: str, *, promise: str, after: Callable[[Bed], None] = lambda _: None
) -> Callable[[Callable[[Bed, np.random.Generator], str]], Kind]:
    """Declare the decorated function, which injects a fault, as a kind; see :class:`Kind`."""
    return lambda inject: Kind(name=name, promise=promise, inject=inject, after=after)


def expect(condition: object, found: str) -> None:
    """Check a part of what is promised.

    Raises:
        BrokenPromise: The condition does not hold.
    """
    if not condition:
        raise BrokenPromise(found)
