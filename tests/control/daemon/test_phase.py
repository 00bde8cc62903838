"""What a worker does, and since when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner.control.daemon.phase import NOT_STORED, OVERDUE_WINDOW, Phase
from tuner.errors import Unreachable


class Seen:
    """A phase, whose time passes when it is looked at."""

    def __init__(self) -> None:
        times = SimpleNamespace(now=1000.0)
        clock: Any = SimpleNamespace(now=lambda: times.now - 900.0)
        self.phase = Phase(lambda: times.now, clock)
        self.seen: list[tuple[str, float]] = []
        self._times = times

    def see(self, seconds: float = 10.0) -> None:
        self.seen.append((self.phase.words, self.phase.since))
        self._times.now += seconds


def test_since_when_a_target_waits() -> None:
    """Another reason is no other outage; a window is overdue since it should have ended."""
    look = Seen()
    phase, see = look.phase, look.see

    see()
    phase.enter("running")
    see()
    phase.window_ended(Unreachable("no answer"))
    see()
    phase.enter("waiting: refused")
    see()
    phase.window_ended(None)
    phase.window_begun(5.0)  # and 3 s more
    see()
    see()
    phase.window_ended(None)
    see()

    assert look.seen == [
        ("starting", 1000.0),
        ("running", 1010.0),
        ("waiting: no answer", 1020.0),
        ("waiting: refused", 1020.0),
        ("running", 1040.0),
        (OVERDUE_WINDOW, 1048.0),
        ("running", 1040.0),
    ]


def test_a_target_whose_turns_are_lost_does_not_run() -> None:
    """Its windows are measured all the while; it waits since the first turn that was lost."""
    look = Seen()
    phase, see = look.phase, look.see
    phase.enter("running")
    phase.window_begun(100.0)

    see()
    phase.turn_lost("the disk is full")
    see()
    phase.window_ended(None)
    see()
    phase.turn_lost("the disk is read-only")
    see()
    phase.window_ended(Unreachable("no answer"))
    see()
    phase.window_ended(None)
    see()
    phase.turn_stored()
    see()

    assert look.seen == [
        ("running", 1000.0),
        (f"{NOT_STORED}: the disk is full", 1010.0),
        (f"{NOT_STORED}: the disk is full", 1010.0),
        (f"{NOT_STORED}: the disk is read-only", 1010.0),
        ("waiting: no answer", 1040.0),
        (f"{NOT_STORED}: the disk is read-only", 1010.0),
        ("running", 1050.0),
    ]
