"""A later life learns from windows of values that the server has made of those it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration
from tests.control.drive.driver_bed import FakeClock, FakeServer
from tests.control.store.lives_bed import life
from tuner.adapters.backend import ApplyReport
from tuner.control import ControlLoop
from tuner.control.store.next_life import replay
from tuner.control.store.store import Store
from tuner.knobs import Configuration, Knob, KnobSpace


class RoundingServer(FakeServer):
    """It runs 15 where 16 is asked for."""

    def apply(self, wanted: Configuration) -> ApplyReport:
        return super().apply(wanted.replace(max_batch_size=min(wanted["max_batch_size"], 15)))


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Store]:
    """A store in which the server was asked for 16 after the first window, and three windows followed."""
    store = Store(tmp_path / "s.db")
    server = RoundingServer(FakeClock(), lambda _: 0.020)
    server.running = configuration(8)
    driver, _ = life(store, server, configuration(16))
    for _ in range(4):
        driver.step()
    yield store
    store.close()


def windows(store: Store, space: KnobSpace) -> dict[Configuration, int]:
    """How many windows of each configuration a later life with these knobs takes up."""
    loop = ControlLoop(space, OBJECTIVE, ScriptedAgent())
    replay(store, 1, loop, learned=0)
    (visits,) = loop.memory.visits().values()
    return {space.decode(number): count for number, count in visits.items()}


def test_what_a_server_rounds_is_remembered(lived: Store) -> None:
    """As the value that it was asked for, as in the life that measured it."""
    texts = [row["configuration"] for row in lived.rows("SELECT configuration FROM window ORDER BY id")]

    assert ['"max_batch_size": 15.0' in text for text in texts] == [False, True, True, True]
    assert windows(lived, SPACE) == {configuration(8): 1, configuration(16): 3}


def test_it_does_not_speak_for_what_was_not_asked_for(lived: Store) -> None:
    """Where the knob no longer has that value, the nearest that is left is another one."""
    batch, *others = SPACE.knobs
    grid = (1, 2, 4, 8)

    found = windows(lived, KnobSpace([Knob(name=batch.name, grid=grid, default=1, role=batch.role), *others]))

    assert found == {configuration(8): 1}
