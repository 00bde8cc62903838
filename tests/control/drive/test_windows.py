"""How long is waited for a window that does not come."""

from __future__ import annotations

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration
from tests.control.drive.driver_bed import FakeClock, FakeServer, unseen
from tuner.adapters.backend import ApplyReport
from tuner.control import ControlLoop, Watched
from tuner.control.drive.watched import longest
from tuner.control.drive.windows import OVERDUE, Windows
from tuner.errors import TimedOut
from tuner.knobs import ApplyCost

LENGTH = 5.0
DUE = longest(LENGTH, 0.0) + OVERDUE


@pytest.fixture
def server() -> FakeServer:
    """One whose metrics do not answer."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    server.measure = unseen  # type: ignore[method-assign]
    return server


@pytest.fixture
def windows(server: FakeServer) -> Windows:
    """Its windows, the first of which was begun."""
    windows = Windows(
        Watched(server, server, server.clock), ControlLoop(SPACE, OBJECTIVE, ScriptedAgent()), LENGTH
    )
    with pytest.raises(TimedOut):
        windows.measure()
    return windows


@pytest.mark.parametrize(("after", "rest"), [(0.0, LENGTH), (DUE - 2.0, 2.0), (DUE + 1.0, LENGTH)])
def test_metrics_are_asked_again_when_the_window_is_due_at_the_latest(
    server: FakeServer, windows: Windows, after: float, rest: float
) -> None:
    """And from then on, which may be for days, as often as windows come."""
    server.clock.sleep(after)

    overdue, pause = windows.went_on(server.clock.now(), 0.0, metrics_only=True)

    assert overdue == (after > DUE)
    assert pause == pytest.approx(rest)


def test_the_window_after_a_change_has_all_its_time(server: FakeServer, windows: Windows) -> None:
    """Whatever was lost before it: what was put back after an outage is not taken back at once."""
    server.clock.sleep(DUE + 1.0)
    report = ApplyReport(
        configuration=configuration(), changed=True, cost=ApplyCost.RELOAD, seconds=0.1, settle=1.5
    )
    windows.changed(report)
    with pytest.raises(TimedOut):
        windows.measure()

    overdue, _ = windows.went_on(server.clock.now() + 1.0, 0.0, metrics_only=False)

    assert not overdue
