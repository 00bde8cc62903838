"""The end of a maintenance window: what was tried last does not stay until the next one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tuner.control.daemon.config import TargetConfig
from tuner.control.drive.driver import Driver
from tuner.control.drive.watched import longest
from tuner.control.drive.windows import OVERDUE
from tuner.control.store.store import Standing, Store
from tuner.errors import StorageError

if TYPE_CHECKING:
    from tuner.knobs import Configuration

__all__ = ["MaintenanceEnd"]


class MaintenanceEnd:
    """Leaves a target with the best configuration when its maintenance window ends.

    If that fails (the server refuses or is away, an operator has paused it), it is tried again in the next
    turns, also by a later life: until the server runs it, or something else than what was tried. It is given
    up when the circuit breaker opens.

    Args:
        config: The target.
        store: Remembers for the next life whether a window has yet to end so.
        standing: The target in it.
        now: Seconds since 1970.
        looks_back: How far back the server's quantiles look, s.
        say: Receives a sentence when the window has ended.
    """

    def __init__(
        self,
        config: TargetConfig,
        store: Store,
        standing: Standing,
        *,
        now: Callable[[], float],
        looks_back: float,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._store = store
        self._target = standing.id
        self._now = now
        self._looks_back = looks_back
        self._say = say
        self._tries = standing.tries  # whether changes may have been tried since the last end
        self._stored = standing.tries  # what the store says of that
        self._stuck: Configuration | None = None  # what could not be replaced by the best yet

    def before_turn(self, driver: Driver) -> bool:
        """Leave the best configuration if it is time; return whether the turn that begins is to try nothing.

        That is where maintenance may be over before a window has judged what the turn would try. As at the
        end of a run the server gets the best configuration then: before the last turn inside, or, where that
        turn took too long, after it.
        """
        c, now = self._config, self._now()
        self._note(tries=self._tries)  # again, where it could not be stored
        if c.mode != "apply" or not c.maintenance:
            self._note(tries=False)
            return False
        inside, turn = c.may_change(now), longest(driver.loop.window(c.window), OVERDUE)
        if inside and c.may_change(now + 2 * turn + self._looks_back):
            self._note(tries=True)
            self._stuck = None
            return False
        if self._tries and not c.may_change(now + turn):
            self._end(driver)
        return inside

    def _end(self, driver: Driver) -> None:
        """Leave the best configuration, unless it has to wait, or something else has come in its place."""
        awaited, stuck = driver.reconciler.unconfirmed, self._stuck
        if awaited is not None and awaited.record is not None:  # it may still run what this life asked for
            return
        if stuck is not None and not driver.loop.space.same(driver.running, stuck):
            self._note(tries=False)  # an order or somebody else has set that, and it stays; or a rollback
        elif stuck is None or not driver.loop.memory.holds_repairs:
            self._leave_best(driver)

    def _leave_best(self, driver: Driver) -> None:
        """Have the driver leave the best configuration; if that fails, a later turn tries it again."""
        loop, tried = driver.loop, driver.running
        same, text, failed = loop.space.same, loop.space.format, loop.memory.failed_changes
        left, best = driver.finish(), loop.incumbent()
        if best is None or not (same(left, best) or same(left, tried)):  # what somebody else has set stays
            said = ""
        elif same(left, best):
            said = "" if same(left, tried) else f"the maintenance window ends; leaving it with {text(left)}"
        elif loop.memory.holds_repairs and loop.memory.failed_changes > failed:
            # To go on would keep the circuit breaker open, which holds rollbacks, too.
            said = f"the maintenance window ends with {text(left)}: {text(best)} failed too often"
        else:
            self._stuck = tried
            return
        self._note(tries=False)
        if said:
            self._say(said)

    def _note(self, *, tries: bool) -> None:
        """Note whether a maintenance window has yet to end with the best configuration."""
        self._tries = tries
        if tries != self._stored:
            with suppress(StorageError):  # the next turn tries it again
                self._store.note_tries(self._target, tries)
                self._stored = tries
