"""What came of a change of a server, and what is remembered of one whose end was not seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tuner.adapters.backend import ApplyReport
from tuner.control.drive.journal import WindowRecord
from tuner.knobs import Configuration, KnobSpace

__all__ = ["LATE", "Outcome", "Unconfirmed", "as_seen", "left_behind"]

LATE = 600.0
"""How long a change may come about after its end was not seen, s: a large model takes minutes to load."""


class Outcome(NamedTuple):
    """What came of a change."""

    word: str
    """As in :attr:`WindowRecord.outcome`."""
    problem: str = ""
    """Why it was not applied."""
    report: ApplyReport | None = None
    certain: bool = True
    """False if its end was not seen: the server may come to run it all the same."""
    taken_back: bool = False
    """Whether one of several replicas refused it: the others are not to run it, should they come to."""


class Unconfirmed(NamedTuple):
    """A change whose end was not seen; see :meth:`Reconciler.expect` and :meth:`Reconciler.confirm`."""

    previous: Configuration
    """What the server ran before."""
    wanted: Configuration
    """What it may come to run."""
    back: bool = False
    """Whether it was a rollback."""
    deadline: float = math.inf
    """Until when it may come about, s; :meth:`Reconciler.expect` sets it."""
    record: WindowRecord | None = None
    """The turn whose end has to be written down; None while the server is asked, for an earlier life's, or
    once another change was begun after it: the journal writes down how the last one ended."""
    failed: bool = False
    """Whether it was written down that it failed, because it had not come about by the next window."""
    judged: bool = False
    """Whether it leads to what needs no judgement."""
    write_came: Callable[[], None] | None = None
    """Writes down that a change of an earlier life came about, where that life has noted that it failed."""
    seen: bool = False
    """Whether it was seen before the first turn that it came about."""
    late: bool = False
    """Whether the server had begun with it when the waiting ended, and may be at it still."""
    taken_back: bool = False
    """Whether one of several replicas refused it: another that comes to run it has to go back."""
    restores: bool = False
    """Whether it puts back what the server had lost."""


def as_seen(
    space: KnobSpace, previous: Configuration, wanted: Configuration, running: Configuration
) -> Configuration:
    """Return what runs if a change came about whose end was not seen.

    Our own clients follow the server, and did not get that far: they have what they had. A change of theirs
    alone did not come about.

    Args:
        space: The knobs.
        previous: What ran before the change.
        wanted: What was to run.
        running: What runs now.
    """
    seen = space.with_clients(wanted, running)
    return wanted if space.same(seen, previous) else seen


def left_behind(space: KnobSpace, previous: Configuration, wanted: Configuration) -> Configuration | None:
    """Return what ran before a change; None if the change only reunites replicas that have come apart."""
    return None if space.same(previous, wanted) else previous
