"""Who the replicas of a group are: finds and opens them, asks all at once, and knows which do not answer."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TypeVar

from tuner.adapters.backend import Backend, Counters
from tuner.adapters.replicas.counters import total
from tuner.adapters.rollback import IN_DOUBT
from tuner.errors import AdapterError, InvalidInput, TimedOut, TunerError, UnknownModel, Unreachable
from tuner.knobs import Configuration

__all__ = ["AWAY", "Membership"]

AWAY = IN_DOUBT
"""Who answers with one of these does not answer."""
MOST_AT_ONCE = 16
REFRESH = 30.0
"""How often replicas are looked up again, and those tried again that were not opened or let us wait, s."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """One replica of the group, whether it could be opened or not."""

    backend: Backend | None = None
    """None until it could be opened."""
    late: Configuration | None = None
    """What it ran when it was opened; None if it was with the group."""
    quantiles: bool = False
    """Whether it exports latency quantiles; they have no values while it serves nothing."""
    counters: Counters | None = None
    """The last that it gave."""
    away: str | None = None
    """Why it did not answer when it was last asked; None if it did."""
    ask_again: float = -math.inf
    """It let us wait for nothing: until then only the others are asked, s on the monotonic clock."""
    missed: bool = False
    """Whether it was said last that it is left out."""
    quiet_until: float = -math.inf
    """That it is left out is not said again before, s on the monotonic clock."""

    def news(self, pause: float) -> str:
        """Return what to say of it after its name: that it is left out, or counts; empty if nothing.

        One that comes and goes all the time does not fill the log.

        Args:
            pause: For how long it is not said again that it is left out, s.
        """
        now = time.monotonic()
        if self.missed and self.away is None:
            self.missed = False
            return "counts from now on" if self.counters is None else "counts again"
        if self.missed or self.away is None or now < self.quiet_until:
            return ""
        self.missed, self.quiet_until = True, now + pause
        return f"is left out for now: {self.away}"


class Membership:
    """The replicas of a group.

    Opening it opens all replicas that can be reached. From then on they are looked up again regularly: new
    ones and those that could not be opened before join, and the counts of those that have gone are kept.

    Args:
        target: What the user wrote.
        find: Returns the targets of the present replicas.
        connect: Opens the backend of a target.
        refresh: Time after which they are looked up again, and those asked again that let us wait, s.

    Raises:
        InvalidInput: There is no replica, the target of one cannot be used, or none serves the model.
        StorageError: A file that a replica's target names cannot be read.
        AdapterError: No replica can be reached.
    """

    def __init__(
        self,
        target: str,
        find: Callable[[], Sequence[str]],
        connect: Callable[[str], Backend],
        *,
        refresh: float = REFRESH,
    ) -> None:
        self.target = target
        self._find = find
        self._connect = connect
        self._refresh = refresh
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="replica")
        self._members: dict[str, Member] = {}
        self._totals_of_gone: Counters | None = None  # of replicas that have left the group
        # How often a replica came or went. Totals of before and after do not compare, as over a restart.
        self._changes = 0
        self._looked_up = -math.inf
        self._lookup_failed = False  # the last time
        try:
            self._look_up(first=True)
        except BaseException:
            self.close()
            raise

    @property
    def opened(self) -> dict[str, Backend]:
        """Target -> backend of those that could be opened."""
        return {
            target: member.backend
            for target, member in list(self._members.items())
            if member.backend is not None
        }

    @property
    def late(self) -> dict[str, Configuration]:
        """Target -> what it ran then, of those that were opened later than the group was."""
        return {
            target: member.late for target, member in list(self._members.items()) if member.late is not None
        }

    @property
    def away(self) -> dict[str, str]:
        """Target -> why it did not answer, of those that did not when they were last asked."""
        return {
            target: member.away for target, member in list(self._members.items()) if member.away is not None
        }

    @property
    def turnover(self) -> int:
        """How often a replica came or went."""
        return self._changes

    def __len__(self) -> int:
        """Return how many were found, whether they answer or not."""
        return len(self._members)

    def look_again(self) -> None:
        """Look the replicas up now, whether that is due or not.

        Raises:
            InvalidInput: There is no replica any more.
            AdapterError: No replica can be reached.
        """
        with self._lock:
            self._look_up(at_once=True)

    def _look_up(self, *, first: bool = False, at_once: bool = False) -> None:
        """Look the replicas up if that is due, or at once."""
        if self.opened and not at_once and time.monotonic() < self._looked_up + self._refresh:
            return
        try:
            self._renew(first=first)
        finally:  # not before: one that takes long must not be due again at once
            self._looked_up = time.monotonic()

    def _renew(self, *, first: bool) -> None:
        """Look the replicas up; open those that are not open, close those that have gone."""
        found = self._found()
        if not found:
            raise InvalidInput("TARGET", f"{self.target} names no replica")
        for gone in set(self._members) - set(found):
            member = self._members.pop(gone)
            self._remove(member)
            if member.missed:
                log.warning("%s is no replica any more", gone)
        for target in found:
            self._members.setdefault(target, Member())
        errors = self._open(first=first)
        # One that does not serve the model may be loading it; where none does, its name is a mistake.
        passing = (AdapterError, UnknownModel) if self.opened else (AdapterError,)
        mistakes = [error for error in errors if not isinstance(error, passing)]
        if first and mistakes:
            raise mistakes[0]
        if not self.opened:
            raise errors[0] if first else Unreachable("; ".join(self.away.values()))

    def _open(self, *, first: bool) -> list[TunerError]:
        """Open those that are not open, in parallel because each may take its timeout; return the errors."""
        openings = {
            target: self._pool.submit(copy_context().run, self._open_one, target, not first)
            for target, member in self._members.items()
            if member.backend is None
        }
        errors: list[TunerError] = []
        for target, opening in openings.items():
            member = self._members[target]
            try:
                member.backend, member.quantiles, member.late = opening.result()
                member.away = None
                self._changes += not first
            except TunerError as error:  # such as that it does not serve the model yet
                member.away = str(error)
                errors.append(error)
        return errors

    def _open_one(self, target: str, late: bool) -> tuple[Backend, bool, Configuration | None]:
        """Open a replica; return it, whether it exports quantiles, and what it runs if it is late."""
        backend = self._connect(target)
        try:
            return backend, backend.describe().quantiles, backend.current() if late else None
        except BaseException:
            backend.close()
            raise

    def _remove(self, member: Member) -> None:
        if member.backend is None:
            return
        member.backend.close()
        self._changes += 1
        earlier = [one for one in (member.counters, self._totals_of_gone) if one is not None]
        if earlier:  # one sum for all: pods come and go for as long as a daemon lives
            self._totals_of_gone = total([], earlier)

    def _found(self) -> list[str]:
        """Return the targets of the replicas; while they cannot be looked up, those that are known."""
        try:
            found = list(dict.fromkeys(self._find()))
        except AWAY as error:
            if not self._members:
                raise
            if not self._lookup_failed:
                log.warning("%s; going on with the replicas that are known", error)
            self._lookup_failed = True
            return list(self._members)
        self._lookup_failed = False
        return found

    def ask(self, question: Callable[[Backend], T]) -> dict[str, T]:
        """Ask all replicas at once, and leave out those that do not answer.

        One that lets us wait until the time is over is left out at once for a while, unless no other answers:
        a window asks often, and would not end in time if it waited for it each time.

        Args:
            question: Asks one.

        Returns:
            Target -> answer.

        Raises:
            AdapterError: None answers, or one fails otherwise.
        """
        with self._lock:
            self._look_up()
            now, opened = time.monotonic(), self.opened
            due = {name: one for name, one in opened.items() if self._members[name].ask_again <= now}
        errors: list[AdapterError] = []
        found = self._ask(due, question, errors)
        if not found:
            rest = {name: one for name, one in opened.items() if name not in due}
            found = self._ask(rest, question, errors)
        if not found:
            raise errors[0]
        return found

    def _ask(
        self, members: Mapping[str, Backend], question: Callable[[Backend], T], errors: list[AdapterError]
    ) -> dict[str, T]:
        """Ask some replicas; return the answers, and add to the errors of those that gave none."""
        answers = {
            target: self._pool.submit(copy_context().run, question, backend)
            for target, backend in members.items()
        }
        found: dict[str, T] = {}
        for target, answer in answers.items():
            try:
                found[target] = answer.result()
            except AWAY as error:
                errors.append(error)
                self.note(target, str(error), silent=isinstance(error, TimedOut))
            else:
                self.note(target, None)
        return found

    def note(self, target: str, away: str | None, *, silent: bool = False) -> None:
        """Note whether a replica answered.

        Args:
            target: Of the replica.
            away: Why it did not; None if it did.
            silent: Whether it let us wait, and shall not do so again soon.
        """
        with self._lock:
            if (member := self._members.get(target)) is not None:
                self._changes += (away is None) != (member.away is None)
                member.away = away
                member.ask_again = time.monotonic() + self._refresh if silent else -math.inf

    def counters(self) -> Counters:
        """Read and add up the totals. There are no quantiles if one of those that answer exports none.

        Who reads them goes on to do so: which replicas are left out is said here, and not to those who open a
        group only to see what it can do.

        Raises:
            AdapterError: None answers.
        """
        answers = self.ask(lambda backend: backend.counters())
        with self._lock:
            answered, others = [], [self._totals_of_gone]
            timed = all(member.quantiles for target, member in self._members.items() if target in answers)
            for target, member in self._members.items():
                if news := member.news(self._refresh):
                    log.warning("%s %s", target, news)
                if target in answers:
                    member.counters = answers[target]
                    answered.append(member.counters)
                else:
                    others.append(member.counters)
            earlier = [counters for counters in others if counters is not None]
            found = total(answered, earlier, restarts=self._changes)
            return found if timed else replace(found, quantiles={})

    def close(self) -> None:
        """Close all connections. May be called twice."""
        for backend in self.opened.values():
            backend.close()
        self._pool.shutdown(wait=False)
