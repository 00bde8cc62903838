"""Requests of a session that can share batches."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tuner.dispatch.pool.rules import PoolSession

__all__ = ["Stream"]


@dataclass(frozen=True)
class Stream:
    """Requests of a session that can share batches: a session of the scheduler."""

    session: PoolSession
    kind: Hashable
    """None for requests that go one by one."""
    largest: int
    """The largest batch."""
    most: int
    """The largest batch that the session's model takes."""
    takes_items: bool
    """Whether the first dimension of its inputs is the number of items."""
    sized: bool
    """Whether the policy plans a request by its items: then it may be ruled out by the time of the largest
    batch, and else only by that of a batch of 1."""
