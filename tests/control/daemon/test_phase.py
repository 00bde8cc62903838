"""What a worker does, and since when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner.control.daemon.phase import OVERDUE_WINDOW, Phase
from tuner.errors import Unreachable


def test_since_when_a_target_waits() -> None:
    """Another reason is no other outage; a window is overdue since it should have ended."""
    times = SimpleNamespace(now=1000.0)
    clock: Any = SimpleNamespace(now=lambda: times.now - 900.0)
    phase, seen = Phase(lambda: times.now, clock), []

    def see(seconds: float = 10.0) -> None:
        seen.append((phase.words, phase.since))
        times.now += seconds

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

    assert seen == [
        ("starting", 1000.0),
        ("running", 1010.0),
        ("waiting: no answer", 1020.0),
        ("waiting: refused", 1020.0),
        ("running", 1040.0),
        (OVERDUE_WINDOW, 1048.0),
        ("running", 1040.0),
    ]
