"""A target that has another name in the daemon's file, or whose URL is written anew, is the same."""

from __future__ import annotations

import pytest

from tests.builders import SPACE, configuration
from tests.control.store.store_bed import record, state
from tuner.control.decide.decision import Hold
from tuner.control.decide.orders import Orders
from tuner.control.store.order_book import orders_of, pause, pin
from tuner.control.store.store import Store

FOUND, TUNED = configuration(), configuration(8)
URL = "triton://h:8001/m?metrics=8002"


@pytest.fixture
def target(store: Store) -> int:
    """The number of a target that runs what it was tuned to."""
    target = store.target("a", URL, SPACE, FOUND).id
    store.decided(target, record(Hold(reason="fine")), state(TUNED, TUNED, window=7), kept=True)
    return target


def ordered(store: Store, name: str, rolled_back: bool) -> None:
    """Pin a target to what it runs, and order to go back to that."""
    pin(store, name)
    if rolled_back:
        with store.writing() as db:
            db.execute("UPDATE orders SET rollback = pinned WHERE name = ?", (name,))


def sentences_of(store: Store, target: int) -> list[str]:
    """What the history of a target says, but of the orders that were given."""
    rows = store.rows("SELECT sentence FROM event WHERE target = ? ORDER BY id", target)
    return [row["sentence"] for row in rows if not row["sentence"].startswith(("pinned to", "paused"))]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("b", URL),
        ("a", "triton://H.:8001/m"),
        ("a", "triton://h:8001/m?metrics=off"),
        ("b", "triton://h,g/m"),
    ],
)
def test_it_goes_on_as_that(store: Store, target: int, name: str, url: str) -> None:
    """Above all, what it ran at first is not what it was tuned to: a restart would not be recognised."""
    grids = store.grids("a", URL)

    assert store.grids(name, url) == grids
    found = store.target(name, url, SPACE, TUNED)

    assert found.id == target
    assert (found.state.original, found.state.current) == (dict(FOUND), dict(TUNED))
    assert (found.state.last_good, found.state.window) == (dict(TUNED), 7)
    (event,) = store.rows("SELECT * FROM event")
    assert event["sentence"] == f"is the target that was 'a', {URL}, and goes on as that"
    assert event["target"] == target


def test_its_orders_go_along(store: Store, target: int) -> None:
    """Whoever has paused it has not meant its name."""
    pause(store, "a", "release of Friday")
    pin(store, "a")

    store.target("b", URL, SPACE, TUNED)

    assert orders_of(store, "b") == Orders(paused="release of Friday", pinned=TUNED)
    assert orders_of(store, "a") == Orders()
    assert store.target("b", URL, SPACE, TUNED).id == target


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_two_that_change_their_names(store: Store, target: int, order: str) -> None:
    """A pause stays with a name that another target has."""
    other = store.target("b", "triton://g:8001/m", SPACE, FOUND).id
    pause(store, "a", "release of Friday")
    urls = {"a": "triton://g:8001/m", "b": URL}

    found = {name: store.target(name, urls[name], SPACE, TUNED).id for name in order}

    assert found == {"a": other, "b": target}
    assert [bool(orders_of(store, name).paused) for name in "ab"] == [True, False]


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_pin_of_the_server_whose_name_it_gets_ends(store: Store, target: int, rolled_back: bool) -> None:
    """The new server takes over the name of the old one; the pin of the old one is not for it."""
    new = store.target("new", "triton://g:8001/m", SPACE, FOUND).id
    ordered(store, "a", rolled_back)
    pin(store, "new")
    pause(store, "a", "release of Friday")

    assert store.target("a", "triton://g:8001/m", SPACE, FOUND).id == new

    assert orders_of(store, "a") == Orders(paused="release of Friday")
    assert orders_of(store, "new") == Orders()
    rolled = [f"not rolled back to {SPACE.format(TUNED)}: that was ordered for another URL"] * rolled_back
    assert sentences_of(store, new) == [
        "is the target that was 'new', triton://g:8001/m, and goes on as that",
        f"no longer pinned to {SPACE.format(TUNED)}: that was ordered for another URL",
        *rolled,
        f"no longer pinned to {SPACE.format(FOUND)}: one of its two names is that of another target, too",
    ]


@pytest.mark.parametrize("pinned", ["a", "b", "ab"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_no_pin_goes_to_the_other_of_two_that_change_their_names(
    store: Store, target: int, order: str, pinned: str
) -> None:
    """Whichever is attached first."""
    store.target("b", "triton://g:8001/m", SPACE, FOUND)
    for name in pinned:
        ordered(store, name, True)
    urls = {"a": "triton://g:8001/m", "b": URL}

    for name in order:
        store.target(name, urls[name], SPACE, TUNED)

    assert [orders_of(store, name) for name in "ab"] == [Orders(), Orders()]


def test_a_pin_does_not_stay_with_a_name_for_the_server_that_had_it_before(store: Store, target: int) -> None:
    """The pinned one gets a name that another target has, and the earlier server of its name comes back."""
    store.target("a", "triton://g:8001/m", SPACE, FOUND)
    store.target("b", "triton://i:8001/m", SPACE, FOUND)
    pin(store, "a")

    store.target("b", "triton://g:8001/m", SPACE, FOUND)
    assert store.target("a", URL, SPACE, TUNED).id == target

    assert orders_of(store, "a") == Orders()


@pytest.mark.parametrize("own", ["by Ada", None])
def test_a_pause_that_was_left_under_the_new_name(store: Store, target: int, own: str | None) -> None:
    """It belongs to that name; a pin that was left there is of another server."""
    pin(store, "a")
    if own:
        pause(store, "a", own)
    with store.writing() as db:
        db.execute("INSERT INTO orders SELECT 'b', 'release of Friday', pinned, pinned FROM orders")
    pin(store, "a", {"max_batch_size": 2.0})

    store.target("b", URL, SPACE, TUNED)

    assert orders_of(store, "b") == Orders(paused=own or "release of Friday", pinned=configuration(2))
    assert orders_of(store, "a") == Orders()


def test_the_event_stands_in_the_history_of_the_target_that_is_meant(store: Store, target: int) -> None:
    """Another server had its name last."""
    other = store.target("a", "triton://g:8001/m", SPACE, FOUND).id

    store.target("a", "triton://h:8001/m?metrics=off", SPACE, TUNED)

    assert sentences_of(store, other) == []
    assert sentences_of(store, target) == [f"is the target that was 'a', {URL}, and goes on as that"]


@pytest.mark.parametrize("url", ["triton://h:8001/n", "triton://g:8001/m", "sim://m", "gone://h:8001/m"])
def test_another_model_or_server_is_another_target(store: Store, target: int, url: str) -> None:
    """Simulated servers are never the same one, and of an unknown adapter nothing is known."""
    assert store.target("a", url, SPACE, FOUND).id != target
    assert store.target("a", URL, SPACE, FOUND).id == target
