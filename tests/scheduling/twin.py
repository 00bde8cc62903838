"""Gives a plain twin the events that a policy got, and compares their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tuner.testing.driver import PolicyStep

__all__ = ["Given", "Twin", "assert_twin"]


class Given(NamedTuple):
    """A command, without what only the arrays know."""

    kind: int
    session: int
    numbers: tuple[int, ...]
    accelerator: int = -1
    start: float = 0.0
    finish: float = 0.0


class Twin(Protocol):
    """A policy in plain Python, with methods `arrive`, `finish` and `wake` as policies have them."""

    commands: list[Given]
    """What the last event gave."""
    wake_at: float


def assert_twin(events: Sequence[PolicyStep], twin: Twin, within: float = 0.0) -> None:
    """Assert that a twin answers every event as the policy did.

    Args:
        events: The events that the policy got, and its answers.
        twin: At time 0; modified in place.
        within: s that their times may differ; 0: equal to the last bit.
    """
    for event in events:
        twin.commands = []
        if hasattr(twin, "items"):
            twin.items = event.items  # how large the request is that arrives
        getattr(twin, event.kind)(*event.subject, event.now)
        expected = [
            Given(c.kind, c.session, c.numbers, c.accelerator, c.start, c.finish) for c in event.commands
        ]
        assert [c[:4] for c in twin.commands] == [c[:4] for c in expected], event
        times = [(c.start, c.finish) for c in twin.commands]
        for (start, finish), given in zip(times, expected, strict=True):
            assert _same(start, given.start, within), event
            assert _same(finish, given.finish, within), event
        assert _same(twin.wake_at, event.wake_at, within), event


def _same(one: float, other: float, within: float) -> bool:
    return one == other or abs(one - other) <= within
