"""A server that dies of what it is given: how often it is given such things."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.builders import SPACE, ScriptedAgent, configuration
from tests.control.drive.driver_bed import FakeClock, FakeServer, away, drive
from tuner.adapters.backend import ApplyReport
from tuner.agents.agent import State
from tuner.control import Driver
from tuner.errors import AdapterError, Refused, TimedOut
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


def test_a_server_without_requests_that_is_deployed_again_and_again_keeps_what_was_good() -> None:
    """It has lived with it for a window each time, though one that says nothing of latencies."""
    server = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015)
    driver, _ = drive(server, configuration(2))
    driver.step()
    driver.step()
    server.p95 = lambda _: math.nan
    for _ in range(2 * driver.loop.memory.limits.breaker):
        away(server, configuration())
        driver.step()
        driver.step()
        driver.step()

    assert server.running == driver.loop.last_good == configuration(2)


GOOD = configuration(2)


class Curious(ScriptedAgent):
    """An agent that always tries something else."""

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        assert allowed is not None
        return max(int(one) for one in allowed if one != state.configuration)


@pytest.mark.parametrize("first", [configuration(), configuration(2)], ids=["as it was", "put back"])
def test_a_server_that_dies_of_one_change_after_the_other_is_spared(first: Configuration) -> None:
    """The circuit breaker opens, also where it lives with what is put back after each of its deaths."""
    server, deaths = FakeServer(FakeClock(), lambda c: 0.02 if c != configuration(2) else 0.015), list[int]()
    driver, _ = drive(server, first)
    driver.step()
    driver.step()
    driver.loop.agent = Curious()
    apply, outcomes = server.apply, list[str]()

    def die(wanted: Configuration) -> ApplyReport:
        report = apply(wanted)
        if wanted != first:
            deaths.append(len(outcomes))
            away(server, configuration())
        return report

    server.apply = die  # type: ignore[method-assign]
    for _ in range(40):
        outcomes += [driver.step().outcome]

    pauses = [later - earlier for earlier, later in pairwise(deaths)]
    assert len(deaths) == 5
    assert pauses[2] > 4 > pauses[1]
    assert pauses[3] > 9


def after_three_deaths(error: AdapterError, *, late: bool) -> tuple[Driver, FakeServer]:
    """Return a driver of a server that has died of three changes, and then fails once to restore what it ran.

    Args:
        error: How that fails.
        late: Whether it comes about all the same.
    """
    server, deaths = FakeServer(FakeClock(), lambda c: 0.02 if c != GOOD else 0.015), list[Configuration]()
    driver, _ = drive(server, GOOD)
    driver.step()
    driver.step()
    driver.loop.agent = Curious()
    apply, fails = server.apply, [error]

    def die(wanted: Configuration) -> ApplyReport:
        if wanted == GOOD and len(deaths) == 3 and fails:
            if late:
                apply(wanted)
            raise fails.pop()
        report = apply(wanted)
        if wanted != GOOD:
            deaths.append(wanted)
            away(server, configuration())
        return report

    server.apply = die  # type: ignore[method-assign]
    while fails:
        driver.step()
    return driver, server


def test_what_is_put_back_late_ends_no_row_either() -> None:
    """As what is put back at once: the server has died of all that was new."""
    driver, _ = after_three_deaths(TimedOut("no answer in time"), late=True)
    driver.step()
    driver.step()

    assert driver.running == GOOD
    assert driver.loop.memory.breaker_open_for > 0
    assert driver.loop.memory.deaths == 3


def test_what_it_has_lost_is_put_back_all_the_same() -> None:
    """The circuit breaker holds what is new, and what the server lived with only once it refuses that."""
    driver, server = after_three_deaths(Refused("out of memory"), late=False)
    assert (server.running, driver.loop.memory.breaker_open_for > 0) == (configuration(), True)

    driver.step()

    assert server.running == GOOD
    assert driver.loop.memory.breaker_open_for > 0
