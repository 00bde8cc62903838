"""Drivers of one target, one after the other: a later life takes up what an earlier one left in the store."""

from __future__ import annotations

from typing import Any

from tests.builders import OBJECTIVE, configuration
from tests.control.drive.driver_bed import (
    P95,
    FakeClock,
    FakeServer,
    drive,
)
from tuner.control import Driver
from tuner.control.store.journal import StoreJournal
from tuner.control.store.next_life import replay, take_up_changes
from tuner.control.store.store import Store
from tuner.knobs import Configuration

GOOD, BAD = configuration(), configuration(4)


def server(p95: P95 = lambda c: 0.045 if c == BAD else 0.020) -> FakeServer:
    return FakeServer(FakeClock(), p95)


def life(
    store: Store, server: FakeServer, *proposals: Configuration, remembers: bool = True, **oversight: Any
) -> tuple[Driver, str | None]:
    """A driver that takes up what the last one left, and what was said about that.

    Args:
        remembers: Whether the windows of earlier lives count.
    """
    standing = store.target("a", "fake://x/m", server.space, server.current())
    journal = StoreJournal(store, standing.id, OBJECTIVE)
    driver, _ = drive(server, *proposals, journal=journal, resume=standing.state, **oversight)
    if remembers:
        replay(store, standing.id, driver.loop, learned=0)
    return driver, take_up_changes(store, standing.id, driver)


def outcomes(store: Store) -> list[str]:
    return [row["outcome"] for row in store.rows("SELECT outcome FROM decision ORDER BY id")]
