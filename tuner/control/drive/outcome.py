"""What came of a change of a server, and what is remembered of one whose end was not seen."""

from __future__ import annotations

from typing import NamedTuple

from tuner.adapters.backend import ApplyReport
from tuner.control.drive.journal import WindowRecord
from tuner.knobs import Configuration

__all__ = ["Outcome", "Unconfirmed"]


class Outcome(NamedTuple):
    """What came of a change."""

    word: str
    """As in :attr:`WindowRecord.outcome`."""
    problem: str = ""
    """Why it was not applied."""
    report: ApplyReport | None = None
    certain: bool = True
    """False if its end was not seen: the server may come to run it all the same."""


class Unconfirmed(NamedTuple):
    """A change whose end was not seen; see :meth:`Driver.expect_change`."""

    previous: Configuration
    """What the server ran before."""
    wanted: Configuration
    back: bool
    """Whether it was a rollback."""
    deadline: float
    """Until when it may come about, s."""
    record: WindowRecord | None = None
    """The turn whose end has to be written down; None if an earlier life has done that."""
    failed: bool = False
    """Whether it was written down that it failed, because it had not come about by the next window."""
