"""Grids of many models are made coarser until they fit one space."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.adapters.triton.ensemble_grids import fitted, what_was_left_out
from tuner.knobs import MAX_SIZE, Knob, KnobSpace

BATCH, DELAY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)


def knob(name: str, grid: tuple[float, ...]) -> Knob:
    return Knob(name=name, grid=grid, default=grid[0])


def models(count: int, batch: tuple[float, ...] = BATCH) -> dict[str, list[Knob]]:
    """Return the knobs of models as Triton's usually are."""
    grids = {"batch": batch, "delay": DELAY, "instances": (1.0, 2.0, 3.0, 4.0)}
    names = [f"m{number}" for number in range(count)]
    return {name: [knob(f"{name}.{own}", grid) for own, grid in grids.items()] for name in names}


def grids_of(knobs: list[Knob]) -> dict[str, tuple[float, ...]]:
    return {one.name: one.grid for one in knobs}


def test_two_models_fit_as_they_are() -> None:
    """Nothing is left out, and nothing is said."""
    two = models(2)
    knobs = fitted(two, {}, (), ["m0", "m1"])

    assert knobs == [*two["m0"], *two["m1"]]
    assert what_was_left_out(two, knobs) == []


def test_the_largest_grids_lose_values_and_keep_their_spread() -> None:
    """Those of the models that compute least first."""
    three = models(3, batch=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0))
    knobs = fitted(three, {"m1.delay": 0.01}, ("m1.batch",), ["m2", "m0", "m1"])

    assert grids_of(knobs) == {
        "m0.batch": (1, 4, 16, 128),
        "m0.delay": (0, 0.001, 0.002, 0.005, 0.02),
        "m0.instances": (1, 2, 3, 4),
        "m1.batch": (1, 2, 4, 8, 16, 32, 64, 128),
        "m1.delay": (0, 0.001, 0.005, 0.01, 0.02),
        "m1.instances": (1, 2, 3, 4),
        "m2.batch": (1, 4, 16, 128),
        "m2.delay": (0, 0.001, 0.005, 0.02),
        "m2.instances": (1, 2, 3, 4),
    }
    (note,) = what_was_left_out(three, knobs)
    assert "left out are m0.batch 2 8 32 64, " in note
    assert "keeps what it runs" not in note


@given(
    st.integers(1, 12),
    st.lists(st.integers(0, 6), min_size=12, max_size=12),
    st.sets(st.integers(0, 11), max_size=3),
)
def test_whatever_the_models_are(count: int, runs: list[int], chosen: set[int]) -> None:
    """They fit; what runs stays, the operator's grids stay, and no model is fixed that could be turned."""
    all_models = models(count)
    names = list(all_models)
    running = {f"{name}.batch": BATCH[runs[number]] for number, name in enumerate(names)}
    own = {f"m{number}.delay" for number in chosen if number < count}
    before = [each for knobs in all_models.values() for each in knobs]

    after = fitted(all_models, running, own, names)

    grids = grids_of(after)
    assert KnobSpace(after).size <= MAX_SIZE
    assert [each.name for each in after] == [each.name for each in before]
    assert all(value in grids[name] for name, value in running.items())
    for each in before:
        assert set(grids[each.name]) <= set(each.grid)
        if each.name in own:
            assert grids[each.name] == each.grid
        elif len(grids[each.name]) > 1:
            assert {each.grid[0], each.grid[-1]} <= set(grids[each.name])
    fixed = [len(grids[f"{name}.batch"]) == 1 for name in names]
    assert fixed == sorted(fixed, reverse=True)  # those that compute least
    assert sum(fixed) <= max(count - 4, 0) + len(own)
