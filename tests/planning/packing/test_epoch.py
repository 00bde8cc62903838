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


def hosting(**backends: dict[str, float]) -> ClusterPlan:
    """Return the plan of an epoch in which these backends served these sessions at these rates."""
    planned = (
        PlannedBackend(
            name=backend,
            cycle=0.05,
            sessions=tuple(PlannedSession(name=name, batch=8, rate=rate) for name, rate in rates.items()),
        )
        for backend, rates in backends.items()
    )
    return ClusterPlan(backends=tuple(planned), load=1.0)


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


def test_what_a_session_lost_is_no_backend_of_its_own_where_the_others_hold_the_rest() -> None:
    """As before, but another session needs what became free: the load did not fall, so none is released."""
    first = plan([line("y", 900.0), line("w", 130.0)])

    made = plan([line("y", 480.0), line("w", 130.0), line("new", 400.0)], previous=first)

    assert sorted(made.hosted["y"].values()) == pytest.approx([80, 400])
    assert (len(made.backends), made.loaded) == (3, 1)


def test_a_session_that_grew_stays_as_far_as_its_backends_serve_it() -> None:
    """One of them up to the 400 requests/s that it can; the rest of 600 goes where the session is already."""
    previous = hosting(one={"a": 300.0}, two={"a": 100.0, "c": 60.0})
    backends = [Backend(name=name) for name in ("empty", "one", "two")]

    made = plan([line("a", 600.0), line("c", 60.0)], backends, previous)

    assert made.hosted["a"] == pytest.approx({"one": 400.0, "two": 200.0})
    assert made.loaded == 0


def test_a_backend_is_filled_whatever_digits_a_stored_plan_lost() -> None:
    """Of the 395.01039501039503 requests/s a plan in a file has nine digits behind the point."""
    peak = line("y", 1.0, beta=0.0101).peak
    stored = plan_from_json(plan([line("y", 2 * peak, beta=0.0101), line("w", 130.0)]).to_json())
    assert max(stored.hosted["y"].values()) < peak

    made = plan([line("y", 1.9 * peak, beta=0.0101), line("w", 130.0)], previous=stored)

    assert (made.loaded, len(made.backends)) == (0, 3)


@pytest.mark.parametrize(("factor", "backends"), [(0.98, 2), (0.96, 1)])
def test_backends_are_released_where_the_load_fell_clearly(factor: float, backends: int) -> None:
    """By more than 3 %, as in the authors' code; one would do in either case."""
    previous = hosting(one={"a": 100.0}, two={"b": 100.0})

    made = plan([line("a", 100.0 * factor), line("b", 100.0 * factor)], previous=previous)

    assert len(made.backends) == backends


def test_what_a_released_backend_served_goes_where_its_model_is() -> None:
    """Though another backend is fuller, which is otherwise preferred."""
    previous = hosting(one={"a": 150.0}, two={"c": 330.0}, three={"a": 30.0})

    made = plan([line("a", 120.0), line("c", 250.0)], previous=previous)

    assert made.hosted == {"a": {"one": pytest.approx(120.0)}, "c": {"two": 250.0}}


def test_of_what_is_new_the_largest_is_placed_first() -> None:
    """The small ones fill what is left then; the other way round, a third backend would be needed."""
    previous = hosting(one={"a": 170.0}, two={"b": 50.0})
    rates = {"a": 170.0, "b": 50.0, "c": 90.0, "d": 170.0, "e": 30.0, "f": 50.0}

    made = plan([line(name, rate) for name, rate in rates.items()], previous=previous)

    assert (len(made.backends), made.loaded) == (2, 4)


def test_what_is_new_goes_only_where_its_model_fits() -> None:
    """There would be time beside the first, but no memory."""
    previous = hosting(one={"a": 10.0})

    made = plan([line("a", 10.0, memory=1500.0), line("b", 10.0, memory=1000.0)], previous=previous)

    assert [[one.name for one in backend.sessions] for backend in made.backends] == [["a"], ["b"]]


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
    previous = hosting(small1={"y": 100.0}, small2={"z": 100.0}, large={"x": 100.0})

    made = plan(loads, backends, previous)

    assert made.loaded == 0
    assert [backend.name for backend in made.backends] == ["small1", "small2", "large"]


def test_backends_are_released_for_what_has_no_place() -> None:
    """One of the two that are nearly empty; all packed afresh would move more models."""
    hosted = {
        "one": {"p": 150.0, "s": 40.0},
        "two": {"q": 120.0, "r": 60.0},
        "three": {"t": 30.0},
        "four": {"u": 20.0},
    }
    loads = [line(name, rate) for row in hosted.values() for name, rate in row.items()]

    made = plan([*loads, line("new", 400.0)], [Backend(name=name) for name in hosted], hosting(**hosted))

    assert (made.unserved, made.loaded) == ((), 2)


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
def test_all_is_packed_afresh_where_else_something_had_no_place(names: tuple[str, str]) -> None:
    """Neither backend has room for what is new, and none can be released; still, most models stay."""
    hosted = dict(zip(names, [{"a": 150.0, "b": 60.0}, {"c": 200.0, "d": 20.0}], strict=True))
    loads = [line(name, rate) for row in hosted.values() for name, rate in row.items()]

    made = plan([*loads, line("new", 120.0)], [Backend(name="one"), Backend(name="two")], hosting(**hosted))

    assert made.unserved == ()
    hosts = {backend.name: {one.name for one in backend.sessions} for backend in made.backends}
    assert hosts == {names[0]: {"a", "b", "d"}, names[1]: {"c", "new"}}
    assert made.loaded == 2


def test_what_has_no_place_displaces_nobody() -> None:
    """Packed afresh, the first of three sessions that fill a backend would take that of the last."""
    previous = hosting(one={"a": 400.0}, two={"b": 400.0})
    loads = [line(name, 400.0) for name in ("new", "a", "b")]

    made = plan(loads, [Backend(name="one"), Backend(name="two")], previous)

    assert made.hosted == previous.hosted
    assert [(one.name, one.rate) for one in made.unserved] == [("new", 400.0)]


def test_a_backend_may_spill_before_it_loses_sessions() -> None:
    """The rates of today fill 106 % of its duty cycle; where they have a margin, no model moves for that."""
    loads = [line("a", 240.0), line("b", 120.0)]
    previous = hosting(one={"a": 200.0, "b": 100.0})

    strict, lenient = (
        plan_epoch(lambda _: loads, None, previous=previous, spill=spill) for spill in (1.0, 1.1)
    )

    assert (strict.loaded, lenient.loaded) == (1, 0)
    assert lenient.backends[0].occupancy > 1.0


def test_too_few_backends_serve_the_fullest_nodes() -> None:
    """Whichever session comes first."""
    loads = [line("rare", 40.0, memory=1500.0), line("often", 300.0, memory=1500.0)]

    made = plan(loads, [Backend(name="one", memory=2000.0)])

    assert served(made) == {"often": 300.0}


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


def test_backends_that_cannot_serve_a_session_are_not_full() -> None:
    """One has too little memory for the model of what has no place; it stays empty."""
    backends = [Backend(name="small", memory=100.0), Backend(name="large", memory=2000.0)]
    loads = [line("a", 600.0, memory=900.0)]

    made = plan(loads, backends)

    assert [backend.name for backend in made.backends] == ["large"]
    assert [one.why for one in made.unserved] == ["the only backend that can serve it is full"]


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


def test_the_fastest_kind_is_filled_first() -> None:
    """Of equal memories; in whatever order the backends are given."""
    backends = [Backend(name="s", kind="slow"), Backend(name="f", kind="fast")]
    for given in (backends, backends[::-1]):
        made = plan_epoch(lambda kind: [line("a", 10.0, beta=0.01 if kind == "fast" else 0.03)], given)

        assert made.hosted == {"a": {"f": 10.0}}


def test_what_has_one_place_only_gets_it() -> None:
    """A rare session that only the fast backend executes, before one that fills it and could go elsewhere."""

    def loads_of(kind: str) -> list[SessionLoad | None]:
        anywhere = line("often", 150.0, memory=1500.0, beta=0.01 if kind == "fast" else 0.03)
        return [anywhere, line("rare", 10.0, memory=1500.0) if kind == "fast" else None]

    backends = [Backend(name=kind, kind=kind, memory=2000.0) for kind in ("fast", "slow")]
    made = plan_epoch(loads_of, backends)

    assert made.hosted == {"rare": {"fast": 10.0}, "often": {"slow": 150.0}}


def test_the_reason_names_the_kind_that_misses_it_least() -> None:
    """What is too slow and what is too large, each on two kinds; without backends given, too."""

    def loads_of(kind: str) -> list[SessionLoad | None]:
        latency = np.array([0.0, 0.06 if kind == "one" else 0.08])
        slow = SessionLoad(name="slow", latency=latency, budget=0.1, rate=1.0)
        return [slow, line("large", 5.0, memory=(300 if kind == "one" else 200) * MIB)]

    backends = [Backend(name=kind, kind=kind, memory=mib * MIB) for kind, mib in (("one", 100), ("two", 150))]
    why = {one.name: one.why for one in plan_epoch(loads_of, backends).unserved}
    (alone,) = plan_epoch(lambda _: loads_of("one")[:1], None).unserved

    assert "at least 120 ms, but has 100 ms" in why["slow"]
    assert alone.why == why["slow"]
    assert why["large"] == "its model needs 200 MiB, and the largest backend has 150"


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
