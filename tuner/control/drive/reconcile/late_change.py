"""Notes, and waits before a command ends, for a change that the server may still be at.

A Triton goes on loading a model after our waiting for it has ended. A command that ended meanwhile would
leave a server that comes to run, minutes later, what nobody has judged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tuner.adapters.backend import ApplyReport, Backend
from tuner.control.drive.outcome import LATE
from tuner.control.drive.replicas import configurations
from tuner.errors import AdapterError, StillLoading
from tuner.interruption import uninterrupted
from tuner.knobs import Configuration
from tuner.profiler.clock import WallClock
from tuner.profiler.source import Clock

__all__ = ["await_late_change", "uninterrupted_change"]

POLL = 1.0
"""How often the server is asked what it runs, s."""


def uninterrupted_change(
    change: Callable[[], ApplyReport],
    late: Callable[[], object],
    say: Callable[[str], object] | None = None,
) -> ApplyReport:
    """Change a server; signals that would end the process wait until that has ended.

    A signal that came meanwhile is raised in the place of the change's error, so what has to be known of a
    late change is noted before.

    Args:
        change: Changes the server.
        late: Notes that the server goes on with the change, as after `StillLoading`.
        say: Told when a signal has to wait, as for :func:`uninterrupted`.

    Returns:
        The report of the change.
    """
    with uninterrupted(say):
        try:
            return change()
        except StillLoading:
            late()
            raise


def await_late_change(
    backend: Backend,
    wanted: Configuration,
    say: Callable[[str], object],
    *,
    clock: Clock | None = None,
    seconds: float = LATE,
) -> bool:
    """Wait until a server runs what it was late to run; say so before, and if it does not come to run it.

    Ctrl-C ends the wait. Of several replicas it is enough that one runs it: the others did not get it.

    Args:
        backend: The server.
        wanted: What it may come to run.
        say: Receives the sentences.
        clock: The time; the wall clock if None.
        seconds: Longest wait, s.

    Returns:
        Whether it came to run it.
    """
    clock, space = clock or WallClock(), backend.space
    text, deadline = space.format(wanted), clock.now() + seconds
    say(
        f"the server may still load {text}: waiting for up to {seconds:.0f} s until it does; Ctrl-C ends that"
    )
    with suppress(KeyboardInterrupt):
        while True:
            with suppress(AdapterError):  # it may be away for a moment
                found = configurations(backend)
                if any(space.same(space.with_clients(wanted, running), running) for running in found):
                    return True
            if clock.now() >= deadline:
                break
            clock.sleep(POLL)
    say(f"the server may come to run {text} later: look with `tuner observe`")
    return False
