"""MonotonicTotals that survive resets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.adapters.metrics.totals import MonotonicTotals
from tuner.adapters.triton.statistics import REQUESTS


def counted(requests: int, **batches: int) -> dict[tuple[str, int], int]:
    """A reading with a number of requests, and ``b8=2`` for two executions of 8."""
    return {REQUESTS: requests, **{("batch_count", int(name[1:])): count for name, count in batches.items()}}


def test_totals_begin_at_zero() -> None:
    """What was counted before the first reading does not count."""
    totals = MonotonicTotals({"1": counted(1000)})

    assert totals.sums()[REQUESTS] == 0
    totals.add({"1": counted(1003)})
    assert totals.sums()[REQUESTS] == 3


def test_a_reset_is_carried_over() -> None:
    """After the server began at 0 again, totals go on from where they were."""
    totals = MonotonicTotals({"1": counted(100)})
    totals.add({"1": counted(150, b4=5)})

    totals.add({"1": counted(10, b4=1)})

    assert totals.sums()[REQUESTS] == 60
    assert totals.sums()["batch_count", 4] == 6
    assert totals.restarts == 1


def test_a_reset_shows_in_any_count() -> None:
    """Fewer executions of one batch size betray a reset even if there are more requests than before."""
    totals = MonotonicTotals({"1": counted(5, b1=5)})

    totals.add({"1": counted(8, b4=2)})

    assert totals.sums()[REQUESTS] == 8
    assert totals.restarts == 1


def test_versions_are_counted_apart() -> None:
    """When one version of a model goes and another comes, the third keeps its totals."""
    totals = MonotonicTotals({"1": counted(100), "2": counted(10)})

    totals.add({"2": counted(15), "3": counted(7)})

    assert totals.sums()[REQUESTS] == 12
    assert totals.restarts == 1


def test_a_model_that_is_away_for_a_while() -> None:
    """While it is unloaded its totals stand still."""
    totals = MonotonicTotals({"1": counted(0)})
    totals.add({"1": counted(9)})

    totals.add({})
    totals.add({})
    totals.add({"1": counted(2)})

    assert totals.sums()[REQUESTS] == 11
    assert totals.restarts == 1


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30))
def test_totals_equal_the_true_count(steps: list[tuple[int, bool]]) -> None:
    """With a reading before each reset, totals are exact whatever happens."""
    server, true = 7, 0
    totals = MonotonicTotals({"1": counted(server)})
    for served, reset in steps:
        server, true = server + served, true + served
        totals.add({"1": counted(server)})
        if reset:
            server = 0
            totals.add({"1": counted(server)})

    assert totals.sums()[REQUESTS] == true
