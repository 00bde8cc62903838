"""Plans of epochs: what moves, what is released, what finds no place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.planning.packing.builders import assert_feasible, line, random_loads, served
from tuner.planning.packing.epoch import plan_epoch
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.plan import (
    MIB,
    Backend,
    ClusterPlan,
    PlannedBackend,
    PlannedSession,
    plan_from_json,
)


def plan(
    loads: list[SessionLoad], backends: list[Backend] | None = None, previous: ClusterPlan | None = None
) -> ClusterPlan:
    return plan_epoch(lambda _: loads, backends, previous=previous, memory=2000.0)


def at(loads: list[SessionLoad], factors: np.ndarray | float) -> list[SessionLoad]:
    factor = np.broadcast_to(factors, len(loads))
    return [replace(load, rate=load.rate * float(f)) for load, f in zip(loads, factor, strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_every_epoch_serves_all_within_all_limits(seed: int) -> None:
    """However rates move, plans are feasible, complete, and survive being stored."""
    rng = np.random.default_rng(seed)
    loads = random_loads(rng, 15, most=300.0)
    previous: ClusterPlan | None = None
    for _ in range(5):
        now = at(loads, rng.uniform(0.3, 2.0, len(loads)))
        made = plan(now, previous=previous)

        assert_feasible(made, now, 2000.0)
        assert served(made) == pytest.approx({load.name: load.rate for load in now})
        assert made.unserved == ()
        previous = plan_from_json(made.to_json())
        assert previous.hosted == {name: pytest.approx(rates) for name, rates in made.hosted.items()}


def test_nothing_moves_if_nothing_changed() -> None:
    """The same rates give the same plan, and no model is loaded."""
    loads = random_loads(np.random.default_rng(3), 20)
    first = plan(loads)

    again = plan(loads, previous=first)

    assert first.loaded == sum(len(backend.sessions) for backend in first.backends)
    assert again.loaded == 0
    assert again.hosted == {name: pytest.approx(rates) for name, rates in first.hosted.items()}


def test_few_models_move_when_rates_change_a_little() -> None:
    """A tenth more or less load moves fewer models than a packing from nothing."""
    rng = np.random.default_rng(4)
    loads = random_loads(rng, 60, most=200.0)
    first = plan(loads)
    changed = at(loads, rng.uniform(0.9, 1.1, len(loads)))

    after = plan(changed, previous=first)

    assert after.loaded < sum(len(backend.sessions) for backend in after.backends) / 4


def test_an_overloaded_backend_loses_its_cheapest_session() -> None:
    """The rare session moves; the one that grew stays."""
    loads = [line("big", 150.0), line("small", 15.0)]
    first = plan(loads)
    assert len(first.backends) == 1

    after = plan([line("big", 380.0), line("small", 15.0)], previous=first)

    assert [[one.name for one in backend.sessions] for backend in after.backends] == [["big"], ["small"]]
    assert after.loaded == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"y": 440.0, "w": 130.0, "z": 90.0}, {"y": 380.0, "w": 130.0, "z": 90.0}),
        ({"y": 400.0, "w": 400.0}, {"y": 360.0, "w": 380.0}),
    ],
)
def test_a_session_keeps_the_backend_it_filled(before: dict[str, float], after: dict[str, float]) -> None:
    """Below the 400 requests/s of a whole accelerator, too; the others need not make room for it."""
    first = plan([line(name, rate) for name, rate in before.items()])
    assert len(first.backends) == 2

    made = plan([line(name, rate) for name, rate in after.items()], previous=first)

    assert made.loaded == 0
    assert served(made) == pytest.approx(after)


def test_a_backend_that_is_no_longer_filled_is_released_if_the_others_hold_the_rest() -> None:
    """Of 900 requests/s on three backends 480 are left: 400 on one, and a few on the shared one."""
    first = plan([line("y", 900.0), line("w", 130.0)])
    assert sorted(first.hosted["y"].values()) == pytest.approx([100, 400, 400])

    made = plan([line("y", 480.0), line("w", 130.0)], previous=first)

    assert sorted(made.hosted["y"].values()) == pytest.approx([80, 400])
    assert (len(made.backends), made.loaded) == (2, 0)


def test_empty_backends_are_released() -> None:
    """When the load falls, two half-empty backends become one."""
    loads = [line("a", 200.0), line("b", 200.0)]
    first = plan(loads)
    assert len(first.backends) == 2

    after = plan([line("a", 40.0), line("b", 40.0)], previous=first)

    assert len(after.backends) == 1
    assert after.loaded == 1


def test_backends_are_not_released_for_the_load_of_others() -> None:
    """Nothing changed; a third of the load was never on the small backends."""
    backends = [
        Backend(name="small1", memory=100.0),
        Backend(name="small2", memory=100.0),
        Backend(name="large", memory=1000.0),
    ]
    loads = [line("y", 100.0, memory=50.0), line("z", 100.0, memory=50.0), line("x", 100.0, memory=900.0)]
    hosts = [("small1", "y"), ("small2", "z"), ("large", "x")]
    previous = ClusterPlan(
        backends=tuple(
            PlannedBackend(
                name=backend, cycle=0.05, sessions=(PlannedSession(name=name, batch=5, rate=100.0),)
            )
            for backend, name in hosts
        ),
        load=0.75,
    )

    made = plan(loads, backends, previous)

    assert made.loaded == 0
    assert [backend.name for backend in made.backends] == ["small1", "small2", "large"]


def test_backends_are_released_for_what_has_no_place() -> None:
    """One of the two that are nearly empty; all packed afresh would move more models."""
    names = ["one", "two", "three", "four"]
    hosted = [{"p": 150.0, "s": 40.0}, {"q": 120.0, "r": 60.0}, {"t": 30.0}, {"u": 20.0}]
    previous = ClusterPlan(
        backends=tuple(
            PlannedBackend(
                name=backend,
                cycle=0.05,
                sessions=tuple(PlannedSession(name=name, batch=8, rate=rate) for name, rate in row.items()),
            )
            for backend, row in zip(names, hosted, strict=True)
        ),
        load=1.05,
    )
    loads = [line(name, rate) for row in hosted for name, rate in row.items()]

    made = plan([*loads, line("new", 400.0)], [Backend(name=name) for name in names], previous)

    assert (made.unserved, made.loaded) == ((), 2)


def test_what_has_no_place_is_named() -> None:
    """Too few backends serve a part; a model that is too large and one that is too slow serve nobody."""
    slow = SessionLoad(name="slow", latency=np.array([0.0, 0.06]), budget=0.1, rate=1.0)
    loads = [line("a", 900.0), line("large", 5.0, memory=1e6), slow]

    made = plan(loads, [Backend(name="one", memory=2000.0)])

    reasons = {one.name: one for one in made.unserved}
    assert set(reasons) == {"a", "large", "slow"}
    assert reasons["a"].rate == pytest.approx(900.0 - served(made)["a"])
    assert not reasons["a"].never
    assert "the only backend is full" in reasons["a"].why
    assert "largest backend" in reasons["large"].why
    assert "at least 120 ms, but has 100 ms" in reasons["slow"].why


def test_models_go_where_they_fit() -> None:
    """Small memories are filled first, so that the large one is left for the large model."""
    backends = [Backend(name="large", memory=1000.0), Backend(name="small", memory=100.0)]
    loads = [line("a", 10.0, memory=50.0), line("b", 10.0, memory=900.0)]

    made = plan(loads, backends)

    assert made.hosted == {"a": {"small": 10.0}, "b": {"large": 10.0}}


def test_kinds_have_profiles_of_their_own() -> None:
    """A session that only one kind executes is planned there, the rest of the other on both."""

    def loads_of(kind: str) -> list[SessionLoad | None]:
        fast = kind == "fast"
        return [line("a", 700.0, beta=0.01 if fast else 0.03), line("b", 10.0) if fast else None]

    backends = [
        Backend(name="f", kind="fast"),
        Backend(name="s1", kind="slow"),
        Backend(name="s2", kind="slow"),
    ]
    made = plan_epoch(loads_of, backends)

    assert made.hosted["b"] == {"f": 10.0}
    assert len(made.hosted["a"]) >= 2


def test_the_memory_of_backends_that_cannot_execute_a_model_is_no_reason() -> None:
    """Only the kind with the small memory executes it; the large backend of the other kind is not named."""

    def loads_of(kind: str) -> list[SessionLoad | None]:
        return [line("a", 5.0), line("b", 5.0, memory=200 * MIB) if kind == "small" else None]

    backends = [
        Backend(name="s", kind="small", memory=100 * MIB),
        Backend(name="l", kind="large", memory=900 * MIB),
    ]
    (missing,) = plan_epoch(loads_of, backends).unserved

    assert missing.never
    assert missing.why.endswith("needs 200 MiB, and the largest backend that serves it in time has 100")
