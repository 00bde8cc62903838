"""What a dispatcher sums up for whoever tunes it."""

from __future__ import annotations

import asyncio

import pytest

from tuner.dispatch.grant import Ended, Grant
from tuner.dispatch.request import Status
from tuner.dispatch.totals import BOUNDS, LARGEST, Totals


def test_requests_are_in_time_late_or_refused() -> None:
    """Each is one of them; the sums over all keep what a session did that is forgotten."""
    totals = Totals()
    totals.ended("m", None, 0.25, late=False)
    totals.ended("m", None, 0.5, late=True)
    totals.ended("m", Status.INVALID, 9.0, late=False)
    totals.ended("other", None, 0.25, late=False)

    one = totals.of("m")
    assert (one.in_time, one.late, one.dropped) == (1, 1, {Status.INVALID.value: 1})
    totals.forget("m")
    assert totals.of("m").in_time == 0
    everything = totals.to_json()
    assert (everything["requests"], everything["failures"], everything["latency"]) == (3, 1, 1.0)
    assert sum(everything["latencies"]) == 3


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (BOUNDS[3], 3), (BOUNDS[3] * 1.001, 4), (BOUNDS[-1], 47), (99.0, 48)],
    ids=str,
)
def test_a_latency_counts_below_its_bound(seconds: float, bucket: int) -> None:
    """And just at it; the last bucket has none."""
    totals = Totals()

    totals.ended("m", None, seconds, late=False)

    assert totals.to_json()["latencies"] == [int(number == bucket) for number in range(len(BOUNDS) + 1)]


def test_batches_are_counted_by_their_items() -> None:
    """Each request of a batch is executed as long as the batch."""
    totals = Totals()
    totals.executed("m", requests=2, items=3, seconds=0.5)
    totals.executed("m", requests=3, items=3, seconds=0.25)
    totals.executed("m", requests=1, items=1, seconds=0.125)

    assert (totals.of("m").batches, totals.of("m").items) == (3, 7)
    everything = totals.to_json()
    assert (everything["inferences"], everything["compute"]) == (7, 2 * 0.5 + 3 * 0.25 + 0.125)
    assert everything["batch_counts"] == [0, 1, 0, 2]
    assert everything["batch_seconds"] == [0.0, 0.125, 0.0, 0.75]


def test_very_large_requests_count_as_one_size() -> None:
    """What clients send must not grow the page without end."""
    totals = Totals()
    for items in (1, LARGEST, LARGEST + 1, 10**9):
        totals.taken("m", items)

    assert totals.of("m").sizes == {1: 1, LARGEST: 3}


def test_what_was_said_first_of_a_grant_holds() -> None:
    """A frontend that answers after its connection was given up changes nothing; a refusal is no answer."""

    async def main() -> Ended:
        grant = Grant(backend="grpc://x:1", model="m", timeout=1.0)
        grant.end(Ended(lost="the frontend is gone"))
        grant.end(Ended(seconds=0.1))
        return await grant.ended

    ended = asyncio.run(main())

    assert ended.lost == "the frontend is gone"
    assert not ended.answered
    assert Ended(seconds=0.1).answered
    assert not Ended(seconds=0.1, status=Status.INVALID).answered
