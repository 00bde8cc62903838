"""What applying a configuration did, and how the window that follows is charged for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import OBJECTIVE, configuration, measurement
from tuner.adapters import ApplyReport
from tuner.knobs import ApplyCost


def report(
    cost: ApplyCost = ApplyCost.RELOAD,
    *,
    changed: bool = True,
    affected: float | None = None,
    seconds: float = 0.5,
) -> ApplyReport:
    """A change of half a second."""
    return ApplyReport(
        configuration=configuration(2),
        changed=changed,
        cost=cost,
        seconds=seconds,
        settle=1.0,
        affected=affected,
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


@pytest.mark.parametrize(
    ("affected", "requests", "waited"),
    [
        ((3.0, 1.0), 4.0, 3 * 0.5 + 1 * 1.5),
        ((None, None), 200.0, 50 * 0.5 + 150 * 1.5),
        ((0.0, 0.0), 0.0, 0.0),
    ],
    ids=["counted", "estimated", "none"],
)
def test_what_comes_to_one_replica_waits_for_its_change_alone(
    affected: tuple[float | None, float | None], requests: float, waited: float
) -> None:
    """Not for those of the others, one after the other; of 200 requests/s each of two has its half."""
    parts = [report(affected=affected[0]), report(affected=affected[1], seconds=1.5)]
    both = ApplyReport.together(parts, configuration(2), seconds=2.0)

    window = replace(both, replicas=tuple(parts)).noted(measurement())

    assert window.change_requests == requests
    assert window.change_seconds * window.change_requests == pytest.approx(waited)
    assert OBJECTIVE.change(window) == pytest.approx(waited / window.asked / OBJECTIVE.slo.latency)


def test_replicas_that_ran_it_already_are_not_charged() -> None:
    """As where only the limit of our own clients has changed; their share of the requests did not wait."""
    parts = (report(), report(changed=False))
    both = replace(ApplyReport.together(parts, configuration(2), seconds=0.6), replicas=parts)

    window = both.noted(measurement())

    assert (window.change_seconds, window.change_requests) == (0.5, 50.0)


def test_without_a_change_nothing_is_charged() -> None:
    """The server ran the configuration already."""
    assert report(changed=False).noted(measurement()) == measurement()
