"""Reading what a server counts while it is changed."""

from __future__ import annotations

import threading
from contextvars import ContextVar

from tuner.adapters.live.meanwhile import read_meanwhile
from tuner.errors import Unreachable


def test_it_reads_again_and_again_until_the_block_ends() -> None:
    """Also if the server does not answer now and then."""
    often, readings = threading.Event(), []

    def read() -> None:
        readings.append(1)
        if len(readings) == 5:
            often.set()
        if len(readings) % 2:
            raise Unreachable("no answer")

    with read_meanwhile(read, every=0.001):
        assert often.wait(60.0)
    count = len(readings)

    assert not [one for one in threading.enumerate() if one.name == "meanwhile"]
    assert len(readings) == count


def test_what_is_logged_meanwhile_is_about_the_same_target() -> None:
    """The thread has a copy of the context of the one that changes the server."""
    target: ContextVar[str] = ContextVar("target")
    seen: list[str] = []
    read = threading.Event()

    def look() -> None:
        seen.append(target.get("nobody"))
        read.set()

    target.set("resnet")
    with read_meanwhile(look, every=0.001):
        assert read.wait(60.0)

    assert set(seen) == {"resnet"}


def test_a_short_change_costs_no_reading() -> None:
    """Most changes of a server without an own model take milliseconds."""
    readings: list[int] = []

    with read_meanwhile(lambda: readings.append(1), every=60.0):
        pass

    assert readings == []
