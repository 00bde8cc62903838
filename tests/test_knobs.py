"""Knobs and the space they span."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import SPACE, configuration
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace, Role, parse_grid


@given(st.integers(0, SPACE.size - 1))
def test_decode_and_encode_are_inverse(index: int) -> None:
    """Every number stands for exactly one configuration."""
    assert SPACE.encode(SPACE.decode(index)) == index


def test_distance_is_euclidean_in_grid_steps() -> None:
    """RRL, Fig. 9: neighbours are one apart whatever their unit."""
    a, b = SPACE.encode(configuration(1, 0.0, 1)), SPACE.encode(configuration(4, 0.01, 2))

    assert SPACE.distance(a, b) == pytest.approx(math.sqrt(2**2 + 2**2 + 1**2))


@given(st.integers(0, SPACE.size - 1), st.floats(0, 5))
def test_region_is_what_lies_within_delta(index: int, delta: float) -> None:
    """C(c) holds exactly the configurations within the distance."""
    expected = {i for i in range(SPACE.size) if SPACE.distance(index, i) <= delta + 1e-9}

    assert set(SPACE.region(index, delta)) == expected


def test_region_of_zero_is_the_point_itself() -> None:
    """With delta 0 region-based learning is point-based."""
    assert SPACE.region(7, 0.0).tolist() == [7]


def test_neighbours_differ_by_one_step_of_one_knob() -> None:
    """In the corner there is one neighbour per knob."""
    corner = SPACE.encode(configuration())

    assert [SPACE.decode(int(i)) for i in SPACE.neighbours(corner)] == [
        configuration(1, 0.0, 2),
        configuration(1, 0.002, 1),
        configuration(2, 0.0, 1),
    ]


def test_configurations_equal_in_effect_are_one() -> None:
    """Where a knob has no effect, its idle value stands for all its values."""
    space = KnobSpace(
        [
            Knob(name="batch", grid=(1, 4), default=1),
            Knob(name="delay", grid=(0, 2, 5), default=0, idle_when=("batch", 1)),
        ]
    )

    assert [space.decode(int(i))["delay"] for i in space.canonical] == [0, 0, 0, 0, 2, 5]
    assert space.distinct.tolist() == [0, 3, 4, 5]
    assert space.effective({"batch": 1, "delay": 7}) == Configuration(batch=1, delay=0)
    assert space.effective({"batch": 4, "delay": 7}) == Configuration(batch=4, delay=7)
    assert space.effective({"delay": 7}) == Configuration(delay=7)


def test_a_column_holds_the_value_of_a_knob_in_every_configuration() -> None:
    """In the order of their numbers."""
    space = KnobSpace(
        [Knob(name="a", grid=(1, 2), default=1), Knob(name="b", grid=(0.0, 5.0, 9.0), default=0.0)]
    )

    for name in space.names:
        assert space.column(name).tolist() == [space.decode(number)[name] for number in range(space.size)]


def test_a_knob_is_found_by_its_role() -> None:
    """Whatever the server calls it; one that has none of the roles is found by none."""
    space = KnobSpace(
        [
            Knob(name="size", grid=(1, 4), default=1, role=Role.BATCH),
            Knob(name="threads", grid=(1, 2), default=1),
        ],
        fixed={Role.PARALLELISM: 0.0},
    )

    assert space.with_role(Role.BATCH) == space.knobs[0]
    assert space.with_role(Role.DELAY) is None
    assert [space.value_of(role, {"size": 4, "threads": 2}) for role in Role] == [4, None, 0.0, None, None, 2]
    assert space.roles == {"size": "batch"}
    assert [knob["role"] for knob in space.to_json()] == ["batch", "other"]


def test_a_role_is_that_of_one_knob() -> None:
    """Two knobs for the batch size would leave open which one says how large batches are."""
    two = [Knob(name=name, grid=(1,), default=1, role=Role.BATCH) for name in "ab"]

    with pytest.raises(ValueError, match="roles must differ"):
        KnobSpace(two)
    with pytest.raises(ValueError, match="roles must differ"):
        KnobSpace(two[:1], fixed={Role.BATCH: 8.0})


def test_apply_cost_is_that_of_the_dearest_change() -> None:
    """Instances change in place, the rest reloads."""
    assert SPACE.apply_cost(configuration(), configuration()) == ApplyCost.FREE
    assert SPACE.apply_cost(configuration(), configuration(instances=2)) == ApplyCost.IN_PLACE
    assert SPACE.apply_cost(configuration(), configuration(batch=2, instances=2)) == ApplyCost.RELOAD


def test_nearest_brings_a_running_server_onto_the_grid() -> None:
    """Values between grid points go to the closer one."""
    assert SPACE.nearest({"max_batch_size": 6, "max_queue_delay": 0.003}) == configuration(4, 0.002, 1)
    assert SPACE.same({"max_batch_size": 6}, configuration(4))
    assert not SPACE.same({"max_batch_size": 6}, configuration(8))


def test_features_are_scaled_to_the_unit_cube() -> None:
    """Function approximators get 0..1 per knob."""
    features = SPACE.features()

    assert features.shape == (SPACE.size, 3)
    assert features.min() == 0
    assert features.max() == 1


def test_configurations_are_values() -> None:
    """Equal values are equal, whatever the order they were given in."""
    a = Configuration(x=1, y=2)

    assert a == Configuration(y=2, x=1)
    assert hash(a) == hash(Configuration(y=2, x=1))
    assert a.replace(x=3) == Configuration(x=3, y=2)
    assert repr(a) == "Configuration(x=1, y=2)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_batch_size": 3}, "3 is not in the grid"),
        ({"threads": 2}, "knob threads: unknown; the knobs are max_batch_size, max_queue_delay, instances"),
    ],
)
def test_values_outside_the_space_are_named(changes: dict[str, int], message: str) -> None:
    """The error names the knob and what would be right."""
    with pytest.raises(InvalidInput, match=message):
        SPACE.encode(configuration().replace(**changes))


@pytest.mark.parametrize("grid", [(), (1, 1), (2, 1), (1, math.nan), (2, 4)])
def test_impossible_grids_are_refused(grid: tuple[float, ...]) -> None:
    """A grid increases, is finite and holds the default."""
    with pytest.raises(InvalidInput, match="knob threads"):
        Knob(name="threads", grid=grid, default=1)


@pytest.mark.parametrize("grid", [(1, 2, 3), [1, 2, 3], range(1, 4)], ids=repr)
def test_a_grid_may_be_any_sequence_of_numbers(grid: Any) -> None:
    """Such as a range of threads."""
    space = KnobSpace([Knob(name="threads", grid=grid, default=2)])

    assert [space.decode(index)["threads"] for index in range(space.size)] == [1, 2, 3]
    assert space == KnobSpace([Knob(name="threads", grid=(1, 2, 3), default=2)])
    assert isinstance(hash(space), int)


@pytest.mark.parametrize("grid", [("a",), (1, None), "1,2", 5, None, ((1, 2),), np.array([1, 2])], ids=repr)
def test_a_grid_that_is_no_tuple_of_numbers_is_refused(grid: Any) -> None:
    """By the name of its knob; it ended in a TypeError."""
    with pytest.raises(InvalidInput, match=r"knob threads: the grid .* is no tuple of numbers; write \(1, 2"):
        Knob(name="threads", grid=grid, default=1)


def test_a_space_too_large_to_learn_in_is_refused() -> None:
    """Agents keep arrays over the space."""
    knobs = [Knob(name=f"k{i}", grid=tuple(range(200)), default=0) for i in range(3)]

    with pytest.raises(InvalidInput, match="use coarser grids"):
        KnobSpace(knobs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size=4,1,16", ("max_batch_size", (1.0, 4.0, 16.0))),
        ("max_queue_delay=0,500us,2ms", ("max_queue_delay", (0.0, 0.0005, 0.002))),
        ("parameters.threads=1, 2", ("parameters.threads", (1.0, 2.0))),
    ],
)
def test_grids_are_read_with_units(text: str, expected: tuple[str, tuple[float, ...]]) -> None:
    """Counts are numbers, durations carry their unit; values are put in order."""
    name, grid = parse_grid(text)

    assert name == expected[0]
    assert grid == pytest.approx(expected[1])


@pytest.mark.parametrize(
    "text", ["", "batch", "batch=", "=1", "batch=1,x", "batch=inf", "delay=-2ms", "delay=nan"]
)
def test_malformed_grids_are_refused(text: str) -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput, match="--knob"):
        parse_grid(text)


def test_a_server_without_knobs_has_one_configuration() -> None:
    """It can be watched, not tuned."""
    space = KnobSpace([])

    assert space.size == 1
    assert space.decode(0) == Configuration()
    assert space.nearest({"max_batch_size": 3}) == Configuration()


def test_sample_is_within_the_space() -> None:
    """Drawing covers the space and nothing else."""
    generator = np.random.default_rng(1)

    assert all(SPACE.sample(generator) in SPACE for _ in range(50))


def test_what_a_space_covers() -> None:
    """Its own configurations, but for rounding; nothing between them, and nothing of other knobs."""
    delay = Knob(name="delay", grid=(0.0, 0.0011), default=0.0, unit="s")
    space = KnobSpace([delay, Knob(name="batch", grid=(2, 4), default=2)])

    assert space.covers({"delay": 1.1 * 1e-3, "batch": 4})
    assert not space.covers({"delay": 0.001, "batch": 4})
    assert not space.covers({"delay": 0.0, "batch": 32})
    assert not space.covers({"delay": 0.0})
    assert not space.covers({"delay": 0.0, "batch": 2, "more": 1})


def test_configurations_are_equal_by_their_effect() -> None:
    """Near to the same values of the grids is not enough; rounding, and what has no effect, do not count."""
    batch = Knob(name="batch", grid=(4, 8), default=4)
    delay = Knob(name="delay", grid=(0.0, 0.0011), default=0.0, unit="s", idle_when=("batch", 1))
    space = KnobSpace([batch, delay])

    assert space.same({"batch": 1, "delay": 0.0}, {"batch": 4, "delay": 0.0})
    assert not space.equal({"batch": 1, "delay": 0.0}, {"batch": 4, "delay": 0.0})
    assert space.equal({"batch": 4, "delay": 0.0011}, {"batch": 4, "delay": 1.1 * 1e-3})
    assert not space.equal({"batch": 4, "delay": 0.0011}, {"batch": 4, "delay": 0.0012})
    assert space.equal({"batch": 1, "delay": 0.0011}, {"batch": 1, "delay": 0.0})
    assert space.equal({"batch": 8}, {"batch": 8, "delay": 0.0011, "more": 1})
