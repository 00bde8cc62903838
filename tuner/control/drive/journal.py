"""What a driver writes down, so that a later life can go on: each turn, and where the run stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.adapters.backend import ApplyReport
from tuner.control.decide.decision import Decision, Hold
from tuner.control.drive.state import RunState
from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, Measurement

__all__ = ["Journal", "RunJournal", "StateFile", "WindowRecord"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowRecord:
    """One turn of the loop: what was measured, what was decided, and what came of it."""

    number: int
    """From 1."""
    measurement: Measurement | None
    """None if the server was away."""
    decision: Decision
    cost: float = NOT_KNOWN
    level: int | None = None
    """The load level of the window, or the last one before an outage; None if it is not known."""
    outcome: str = "held"
    """What came of the decision: ``held``, ``recommended`` (nothing may be changed at all), ``postponed``
    (nothing may be changed now), ``applied``, ``failed`` or ``interrupted``; ``decided`` before it is
    carried out."""
    report: ApplyReport | None = None
    """What applying did; None if nothing was applied."""
    error: str = ""
    """Why applying or measuring failed; empty if it did not."""
    lag: float = NOT_KNOWN
    """Time from the end of the window until its decision was made and written down, s."""

    @property
    def wanted(self) -> Configuration | None:
        """The configuration that was decided on, applied or not; None to leave what runs."""
        return None if isinstance(self.decision, Hold) else self.decision.configuration


class Journal(Protocol):
    """Where a driver writes down what happens."""

    def decided(self, record: WindowRecord, state: RunState) -> None:
        """Write down a decision before it is carried out.

        Raises:
            StorageError: It cannot be written; the driver does not carry it out.
        """
        ...

    def changing(self) -> None:
        """Write down that the last decision is about to be applied.

        Raises:
            StorageError: It cannot be written; the driver does not apply it.
        """
        ...

    def changed(self, record: WindowRecord, state: RunState) -> None:
        """Write down how the change ended; what cannot be written now is written later."""
        ...

    def stands(self, state: RunState) -> None:
        """Write down where the run stands although nothing was decided, as at its begin or in an outage."""
        ...


class StateFile:
    """A journal that keeps only where the run stands, in a file.

    Args:
        path: Where to; None keeps nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def decided(self, record: WindowRecord, state: RunState) -> None:  # noqa: ARG002
        """Write down where the run stands."""
        self.stands(state)

    def changing(self) -> None:
        """Keep what was written: the file holds the configuration before the change until it has ended."""

    def changed(self, record: WindowRecord, state: RunState) -> None:  # noqa: ARG002
        """Write down what the server runs now."""
        self.stands(state)

    def stands(self, state: RunState) -> None:
        """Replace the file."""
        if self._path is not None:
            state.save(self._path)


class RunJournal:
    """The journal of a run, which says in each entry where the run stands at that moment.

    Args:
        journal: Where to.
        state: Returns where the run stands.
    """

    def __init__(self, journal: Journal, state: Callable[[], RunState]) -> None:
        self._journal = journal
        self._state = state

    def decided(self, record: WindowRecord) -> None:
        """Write down a decision before it is carried out; see :meth:`Journal.decided` for the error."""
        self._journal.decided(record, self._state())

    def changing(self) -> None:
        """Write down that the last decision is about to be applied; see :meth:`Journal.changing`."""
        self._journal.changing()

    def changed(self, record: WindowRecord) -> None:
        """Write down how the change ended."""
        self._journal.changed(record, self._state())

    def stands(self) -> None:
        """Write down where the run stands although nothing was decided."""
        self._journal.stands(self._state())
