"""What the replicas of a server run, taken together, also where they have come apart.

Replicas have one configuration. They come apart where one of them restarts, joins, takes a change late, or is
changed by hand. Then one of the configurations prevails, and all are to have it:

1. what a change was to bring about whose end was not seen, if it came about at one of them: all were asked,
   and none has refused it
2. what was applied, if as many run it as anything else; or if one still does, and all others run what the
   server ran at first, as restarted ones do
3. what most of them run: somebody has changed those

A change that one of them has refused counts for nothing as long as another runs something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tuner.adapters.backend import Backend
from tuner.adapters.replicas.canary import Canary
from tuner.knobs import Configuration, KnobSpace

__all__ = ["Found", "configurations", "prevailing", "taken_together"]


class Found(NamedTuple):
    """What a server runs."""

    configuration: Configuration
    """What prevails where its replicas differ."""
    apart: str = ""
    """How they differ, in words; empty if they do not."""


def configurations(backend: Backend) -> list[Configuration]:
    """Return what each replica of a backend runs, or what its one server runs.

    Raises:
        AdapterError: No server answers.
    """
    return backend.configurations() if isinstance(backend, Canary) else [backend.current()]


def taken_together(
    each: Sequence[Configuration],
    space: KnobSpace,
    *,
    applied: Configuration,
    original: Configuration,
    wanted: Configuration,
    refused: bool = False,
) -> Found:
    """Return what replicas run together.

    Args:
        each: What each of them runs; at least one.
        space: Their knobs.
        applied: What was applied to them.
        original: What they ran at first.
        wanted: What a change was to bring about whose end was not seen; else what was applied.
        refused: Whether one of them has refused what was wanted. The others may come to run it late.
    """
    kinds = [space.nearest(one) for one in each]
    counts = Counter(kinds)
    # Our own clients have one limit for all, which no replica can lose.
    known = [space.with_clients(one, each[0]) for one in (applied, original, wanted)]
    ours, first, asked = map(space.nearest, known)
    if refused and asked != ours and len(counts) > 1:
        del counts[asked]
    prevails = counts.most_common(1)[0][0]
    if asked in counts and asked != ours:
        prevails = asked
    elif ours in counts and (counts[ours] == counts[prevails] or set(counts) == {ours, first}):
        prevails = ours
    found, odd = each[kinds.index(prevails)], len(each) - counts[prevails]
    words = f"replicas differ: {odd} of {len(each)} run something else than {space.format(found)}"
    return Found(found, words if odd else "")


def prevailing(backend: Backend) -> Configuration:
    """Return what prevails among the replicas of a backend to which nothing was applied yet.

    Raises:
        AdapterError: No server answers.
    """
    each = configurations(backend)
    found = taken_together(each, backend.space, applied=each[0], original=each[0], wanted=each[0])
    return found.configuration
