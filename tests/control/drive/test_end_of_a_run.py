"""What the end of a run leaves where everything that is known of the present load was rolled back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import SPACE, configuration
from tests.control.drive.canary_bed import NEW, OLD, Fleet, driver_of
from tests.control.drive.driver_bed import Book, FakeClock, FakeServer, drive, silent
from tuner.control.decide.decision import Rollback
from tuner.control.decide.event import Remembered
from tuner.control.decide.orders import Orders
from tuner.measurement import Measurement


@pytest.mark.parametrize("answered", [True, False])
def test_what_an_operator_has_rolled_back_is_not_put_back_where_nothing_else_was_measured(
    answered: bool,
) -> None:
    """What was gone back to has no window yet, and stays all the same."""
    server, book = FakeServer(FakeClock(), lambda _: 0.02), Book()
    server.running = configuration(2)
    driver, _ = drive(server, orders=book)
    driver.step()
    book.orders = Orders(rollback=configuration())
    if not answered:
        silent(server, done=True)
    driver.step()

    left = driver.finish()

    assert left == server.running == configuration()
    assert driver.loop.last_good is None, "nor does a restart bring it back"


def test_a_change_after_which_requests_failed_under_another_load_is_not_put_back() -> None:
    """It is all that is known of that load, and was rolled back."""
    server = Overloaded(FakeClock(), lambda _: 0.02)
    driver, _ = drive(server, configuration(2))
    driver.step()
    server.overloaded = True
    record = driver.step()
    assert isinstance(record.decision, Rollback)
    assert driver.loop.memory.at(driver.loop.level).tried == [SPACE.encode(configuration(2))]

    left = driver.finish()

    assert left == server.running == configuration()


@pytest.mark.parametrize("seen", [False, True])
def test_what_a_restarted_server_got_back_is_not_given_up_for_what_broke_the_slo(seen: bool) -> None:
    """A window of an earlier life is all that is known of the load; but for one in which it broke it, too."""
    server = FakeServer(FakeClock(), lambda _: 0.02)
    server.running = configuration(2)
    driver, _ = drive(server)
    driver.loop.observe(Remembered(24, configuration(), 1.4, False))
    if seen:
        driver.loop.observe(Remembered(24, configuration(2), 1.6, False))
    driver.loop.last_good = configuration(2)

    left = driver.finish()

    assert left == server.running == configuration(1 if seen else 2)


def test_replicas_that_differ_at_the_end_get_what_most_run_where_all_else_was_rolled_back(
    fleet: Fleet,
) -> None:
    """One has restarted with what an operator has rolled back."""
    driver = driver_of(fleet, orders=Book(rollback=NEW))
    driver.step()
    assert fleet.running == [NEW, NEW, NEW]
    fleet.servers["c"].running = OLD

    left = driver.finish()

    assert left == NEW
    assert fleet.running == [NEW, NEW, NEW]


class Overloaded(FakeServer):
    """Under its other load half of the requests fail, and the others are late."""

    overloaded = False

    def measure(self, *args: float, **more: float) -> Measurement:
        m = super().measure(*args, **more)
        if not self.overloaded:
            return m
        requests = round(2000 * m.seconds)
        return replace(
            m,
            arrival_rate=2000.0,
            requests=requests,
            failures=requests // 2,
            latency_mean=0.2,
            latency_p95=0.3,
            latency_p99=0.4,
        )
