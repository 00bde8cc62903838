"""A later life: what an earlier one left in the store, and what of it still counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration
from tests.control.drive.driver_bed import P95, FakeClock, FakeServer, drive
from tuner.control import Apply, ControlLoop, Driver, Hold, Rollback
from tuner.control.store.journal import StoreJournal, replay, resolve
from tuner.control.store.store import Store
from tuner.knobs import Configuration, Knob, KnobSpace

GOOD, BAD = configuration(), configuration(4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.db")
    yield store
    store.close()


def server(p95: P95 = lambda c: 0.045 if c == BAD else 0.020) -> FakeServer:
    return FakeServer(FakeClock(), p95)


def life(store: Store, server: FakeServer, *proposals: Configuration) -> tuple[Driver, str | None]:
    """A driver that takes up what the last one left, and what was said about that."""
    standing = store.target("a", "fake://x/m", SPACE, server.current())
    journal = StoreJournal(store, standing.id, OBJECTIVE)
    driver, _ = drive(server, *proposals, journal=journal, resume=standing.state)
    replay(store, standing.id, driver.loop, learned=0)
    return driver, resolve(store, standing.id, driver)


def test_a_change_that_was_not_judged_is_judged_by_the_next_life(store: Store) -> None:
    """The daemon died between the change and the window that would have shown that it broke the SLO."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    assert [type(first.step().decision) for _ in range(2)] == [Hold, Apply]

    second, sentence = life(store, target)
    decision = second.step().decision

    assert sentence is not None
    assert "was judged; it is on probation again" in sentence
    assert sentence in [row["sentence"] for row in store.rows("SELECT sentence FROM event")]
    assert isinstance(decision, Rollback)
    assert decision.configuration == GOOD
    assert target.running == GOOD


@pytest.mark.parametrize("what", ["judged", "rolled back", "changed by hand"])
def test_what_was_judged_or_is_not_in_force_is_not_judged_again(store: Store, what: str) -> None:
    """One window is enough, and a server that somebody else changed runs nothing of ours."""
    target = server((lambda _: 0.020) if what == "judged" else server().p95)
    first, _ = life(store, target, GOOD, BAD)
    for _ in range(2 if what == "changed by hand" else 3):
        first.step()
    if what == "changed by hand":
        target.running = configuration(2)

    assert target.running == {"judged": BAD, "rolled back": GOOD}.get(what, configuration(2))
    assert life(store, target)[1] is None


def test_windows_of_values_that_are_gone_are_not_told(store: Store) -> None:
    """With fewer values, what ran before must not speak for the nearest that is left."""
    target = server()
    first, _ = life(store, target, BAD)
    for _ in range(3):
        first.step()
    fewer = [Knob(name=k.name, grid=k.grid[:2], default=k.default, unit=k.unit) for k in SPACE.knobs]
    space = KnobSpace(fewer)
    loop = ControlLoop(space, OBJECTIVE, ScriptedAgent())

    seen = replay(store, 1, loop, learned=0)

    assert seen == 2
    assert loop.memory.at(loop.level).tried == [space.encode(GOOD)]  # type: ignore[arg-type]
