"""What applying a configuration did, and how the window that follows is charged for it."""

from __future__ import annotations

import pytest

from tests.builders import configuration, measurement
from tuner.adapters import ApplyReport
from tuner.knobs import ApplyCost


def report(
    cost: ApplyCost = ApplyCost.RELOAD, *, changed: bool = True, affected: float | None = None
) -> ApplyReport:
    """A change of half a second."""
    return ApplyReport(
        configuration=configuration(2), changed=changed, cost=cost, seconds=0.5, settle=1.0, affected=affected
    )


@pytest.mark.parametrize(
    ("cost", "affected"),
    [(ApplyCost.FREE, 0), (ApplyCost.IN_PLACE, 0), (ApplyCost.RELOAD, 100), (ApplyCost.RESTART, 100)],
)
def test_requests_that_came_during_a_reload_are_affected(cost: ApplyCost, affected: int) -> None:
    """At 200 requests/s a hundred in half a second; a change in place affects none."""
    window = report(cost).noted(measurement())

    assert (window.change_seconds, window.change_requests) == (0.5, affected)


def test_a_server_that_counts_knows_better() -> None:
    """What it says is taken."""
    assert report(affected=3.0).noted(measurement()).change_requests == 3.0


def test_without_a_change_nothing_is_charged() -> None:
    """The server ran the configuration already."""
    assert report(changed=False).noted(measurement()) == measurement()
