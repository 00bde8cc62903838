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


@pytest.mark.parametrize("url", ["triton://h:8001/n", "triton://g:8001/m", "sim://m", "gone://h:8001/m"])
def test_another_model_or_server_is_another_target(store: Store, target: int, url: str) -> None:
    """Simulated servers are never the same one, and of an unknown adapter nothing is known."""
    assert store.target("a", url, SPACE, FOUND).id != target
    assert store.target("a", URL, SPACE, FOUND).id == target
