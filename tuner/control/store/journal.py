"""Records what happens to a target in the store."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from tuner.control.decide.validation import unusable
from tuner.control.drive.state import RunState
from tuner.control.store.store import Store
from tuner.errors import StorageError
from tuner.objective import Objective

if TYPE_CHECKING:
    from tuner.control.drive.journal import WindowRecord

__all__ = ["StoreJournal"]


class StoreJournal:
    """The journal of a :class:`~tuner.control.drive.driver.Driver` in a :class:`~.store.Store`.

    Life: `decided` in each turn, then `changing` and `changed` if the decision is carried out.

    Args:
        store: The store.
        target: The target's number in it.
        objective: Decides whether a window kept the SLO, and whether something is learned from it.
    """

    def __init__(self, store: Store, target: int, objective: Objective) -> None:
        self._store = store
        self._target = target
        self._objective = objective
        self._decision: int | None = None
        self._change: int | None = None  # the last decision that was begun

    def decided(self, record: WindowRecord, state: RunState) -> None:
        """Record the window and the decision."""
        m, objective = record.measurement, self._objective
        kept, unused = (False, "") if m is None else (objective.kept(m), unusable(m, objective))
        self._decision = self._store.decided(self._target, record, state, kept=kept, unused=unused)

    def changing(self) -> None:
        """Record that the change begins."""
        assert self._decision is not None, "decided comes first"
        self._change = self._decision  # how it ended may be known only windows later
        self._store.changing(self._change)

    def changed(self, record: WindowRecord, state: RunState) -> None:
        """Record how it ended; while the disk is full, the store owes it."""
        assert self._change is not None, "changing comes first"
        seconds = record.report.seconds if record.report is not None else math.nan
        self.stands(state)  # first: what a change has taught is not lost where the process ends between
        with suppress(StorageError):
            self._store.changed(
                self._change, record.outcome, state.current, seconds=seconds, error=record.error
            )

    def stands(self, state: RunState) -> None:
        """Record what changes have taught; what the target runs, the store knows from the decisions."""
        with suppress(StorageError):  # the next decision brings it
            self._store.learned(self._target, state)
