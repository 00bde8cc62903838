"""A server that dies of what it is given: how often it is given such things."""

from __future__ import annotations

from tests.builders import SPACE, configuration
from tests.control.drive.driver_bed import FakeClock, FakeServer, away, drive
from tuner.adapters.backend import ApplyReport
from tuner.knobs import Configuration


def test_what_was_good_and_kills_the_server_by_now_is_not_put_back_for_ever() -> None:
    """As often as the circuit breaker allows: whatever the server begins with runs then."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    deaths = list[Configuration]()
    driver, _ = drive(server, configuration(2))
    driver.step()
    driver.step()
    apply = server.apply

    def die(wanted: Configuration) -> ApplyReport:
        report = apply(wanted)
        deaths.append(wanted)
        away(server, configuration())
        return report

    server.apply = die  # type: ignore[method-assign]
    away(server, configuration())
    for _ in range(9):
        driver.step()

    assert deaths == [configuration(2)] * driver.loop.memory.limits.breaker
    assert server.running == driver.loop.last_good == configuration()
    assert driver.loop.memory.banned(driver.loop.level) == [SPACE.encode(configuration(2))]
