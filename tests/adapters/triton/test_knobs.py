"""Which knobs a model has, and which values make sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.adapters.live.knobs import check
from tuner.adapters.triton.configuration import read_configuration, rewrite
from tuner.adapters.triton.knobs import batch_sizes, kind_of, knob_space, left_alone
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost

MODEL = {
    "max_batch_size": 64,
    "instance_group": [{"count": 1}],
    "parameters": {"threads": {"string_value": "1"}},
}


def grids(
    config: dict[str, Any], wanted: dict[str, tuple[float, ...]] | None = None, **options: int
) -> dict[str, tuple[float, ...]]:
    space = knob_space(config, wanted or {}, cores=options.pop("cores", 8), **options)
    return {knob.name: knob.grid for knob in space.knobs}


def test_default_grids() -> None:
    """Batch limit, delay and instances, with Triton's own defaults."""
    space = knob_space(MODEL, {}, cores=8)

    assert {knob.name: knob.grid for knob in space.knobs} == {
        "max_batch_size": (1, 2, 4, 8, 16, 32),
        "max_queue_delay": (0, 0.001, 0.002, 0.005, 0.01, 0.02),
        "instances": (1, 2, 3, 4),
    }
    assert dict(space.default) == {"max_batch_size": 1, "max_queue_delay": 0, "instances": 1}
    assert [knob.apply_cost for knob in space.knobs] == [
        ApplyCost.RELOAD,
        ApplyCost.RELOAD,
        ApplyCost.RELOAD,
    ]


@pytest.mark.parametrize(
    "rule",
    [
        {"preserve_ordering": True},
        {"priority_levels": "2", "default_priority_level": "1"},
        {"default_queue_policy": {"default_timeout_microseconds": "5000"}},
    ],
)
def test_rules_that_need_the_dynamic_batcher(rule: dict[str, Any]) -> None:
    """Without batching Triton heeds none of them: only who names 1 has it tried."""
    config = {**MODEL, "dynamic_batching": {"preferred_batch_size": [4], **rule}}
    changed = rewrite(config, {"max_batch_size": 1, "max_queue_delay": 0, "instances": 1})

    assert grids(config)["max_batch_size"] == (2, 4, 8, 16, 32, 64)
    assert batch_sizes(config, 8) == (8, 16, 32, 64)
    assert grids(config, {"max_batch_size": (1, 4)})["max_batch_size"] == (1, 4)
    assert grids(changed)["max_batch_size"] == (1, 2, 4, 8, 16, 32)


def test_a_preferred_size_is_no_such_rule() -> None:
    config = {**MODEL, "dynamic_batching": {"preferred_batch_size": [4], "default_queue_policy": {}}}

    assert grids(config)["max_batch_size"] == (1, 2, 4, 8, 16, 32, 64)


def test_grids_end_at_the_models_limit_and_the_cores() -> None:
    """No batch above the model's own maximum, no more instances than cores."""
    assert grids({**MODEL, "max_batch_size": 6}, cores=2) == {
        "max_batch_size": (1, 2, 4),
        "max_queue_delay": (0, 0.001, 0.002, 0.005, 0.01, 0.02),
        "instances": (1, 2),
    }


@given(
    limit=st.integers(2, 512),
    lowered=st.none() | st.integers(2, 512),
    delay=st.integers(0, 1_000_000),
    instances=st.integers(1, 64),
    cores=st.integers(1, 64),
)
def test_default_grids_contain_what_runs(
    limit: int, lowered: int | None, delay: int, instances: int, cores: int
) -> None:
    """So that it is judged as what it is, and can come back after a change."""
    config = {
        "max_batch_size": limit,
        "dynamic_batching": {"max_queue_delay_microseconds": str(delay)},
        "instance_group": [{"count": instances, "kind": "KIND_CPU"}],
    }
    if lowered is not None:  # by a run before this one
        values = {"max_batch_size": min(lowered, limit), "max_queue_delay": 0.003, "instances": 7}
        config = rewrite(config, values)
    space = knob_space(config, {}, cores=cores)

    assert read_configuration(config, space.names) in space


def test_batch_sizes_of_a_model_of_an_ensemble() -> None:
    """What runs and the model's own limit are among them, and none is below the ensemble's."""
    config = rewrite(MODEL, {"max_batch_size": 24, "max_queue_delay": 0.0})

    assert batch_sizes(config, 16) == (1, 16, 24, 32, 64)
    assert batch_sizes(MODEL, 1) == (1, 2, 4, 8, 16, 32, 64)


def test_what_could_not_be_set_again_is_in_no_grid() -> None:
    """A server may run what the tuner would refuse to set."""
    batching = {"dynamic_batching": {"max_queue_delay_microseconds": "3000000"}}

    assert grids(MODEL | batching)["max_queue_delay"] == (0, 0.001, 0.002, 0.005, 0.01, 0.02)


def test_a_given_grid_is_taken_as_it_is() -> None:
    """What runs does not join it."""
    groups = {"instance_group": [{"count": 8}]}

    assert grids(MODEL | groups, {"instances": (1.0, 2.0)})["instances"] == (1, 2)


def test_limits_below_the_clients_requests_are_left_out() -> None:
    """A batch limit below the rows of a request would have it refused."""
    assert grids(MODEL, rows=5)["max_batch_size"] == (1, 8, 16, 32)


@pytest.mark.parametrize(
    "config",
    [
        {"max_batch_size": 0, "instance_group": [{"count": 1}]},
        {"max_batch_size": 1},
        {"max_batch_size": 8, "sequence_batching": {"iterative_sequence": True}},
    ],
)
def test_models_without_dynamic_batching(config: dict[str, Any]) -> None:
    """They have instances only."""
    assert list(grids(config)) == ["instances"]


def test_a_stateful_model_has_instances_only_if_they_are_named() -> None:
    """It is changed in place then; a reload would end the sequences that are open."""
    stateful = {**MODEL, "sequence_batching": {}}
    named = knob_space(stateful, {"instances": (1.0, 2.0), "parameters.threads": (1.0, 2.0)}, cores=8)

    assert grids(stateful) == {}
    assert grids(stateful, {"instances.0": (1.0, 2.0)}) == {"instances.0": (1, 2)}
    assert [knob.apply_cost for knob in named.knobs] == [ApplyCost.IN_PLACE, ApplyCost.RELOAD]
    assert "has no knob by default" in left_alone(stateful, ())[0]
    assert left_alone(stateful, named.names) == left_alone(MODEL, ()) == []
    with pytest.raises(InvalidInput, match=r"its knobs: instances, parameters\.KEY"):
        grids(stateful, {"max_batch_size": (1.0, 2.0)})


def test_model_without_knobs() -> None:
    """An ensemble has none; it can be watched only."""
    assert grids({"ensemble_scheduling": {}, "max_batch_size": 8}) == {}


def test_given_grids_replace_and_add() -> None:
    """A user's grid takes the default one's place; a parameter of the model becomes a knob."""
    found = grids(MODEL, {"max_batch_size": (8.0, 64.0), "parameters.threads": (1.0, 2.0)})

    assert found["max_batch_size"] == (8, 64)
    assert found["parameters.threads"] == (1, 2)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("max_batch_size", (1.0, 128.0)),
        ("max_batch_size", (0.0, 1.0)),
        ("max_batch_size", (1.0, 2.5)),
        ("max_queue_delay", (0.0, 5.0)),
        ("max_queue_delay", (-0.001, 0.0)),
        ("max_queue_delay", (float("nan"),)),
        ("max_queue_delay", (0.0, 1e-7)),
        ("max_queue_delay", (0.0, 1.5e-6)),
        ("instances", (0.0, 1.0)),
        ("instances", (1.0, 1000.0)),
        ("parameters.threads", (1.5,)),
        ("parameters.nothing", (1.0,)),
        ("max_batchsize", (1.0,)),
    ],
)
def test_unusable_grids(name: str, grid: tuple[float, ...]) -> None:
    """The message names the knob."""
    with pytest.raises(InvalidInput, match=f"knob {name}"):
        grids(MODEL, {name: grid})


def test_check_takes_values_between_grid_points() -> None:
    """What a server runs when we come need not be on the grid, and must be restorable."""
    space = knob_space(MODEL, {}, cores=2)

    check(
        space,
        space.default.replace(max_batch_size=64, max_queue_delay=0.0005),
        lambda name: kind_of(name, 64),
    )


@given(st.integers(0, 1_000_000))
def test_delays_are_whole_microseconds(delay: int) -> None:
    """Triton counts in them; it would round anything else, and run another value than it was given."""
    kind = kind_of("max_queue_delay", 64)

    kind.check("max_queue_delay", delay / 1e6)
    kind.check("max_queue_delay", delay * 1e-6 if delay < 1_000_000 else 1.0)  # as other sums come out
    with pytest.raises(InvalidInput, match="s is not a multiple of 1e-06 s; the server would round it"):
        kind.check("max_queue_delay", (delay - 0.5 if delay else 0.1) / 1e6)


@pytest.mark.parametrize("delay", [1e-9, 1.001e-6])
def test_a_nanosecond_is_not_the_rounding_of_a_float(delay: float) -> None:
    """The server would drop it, and what it reads back would be another value."""
    with pytest.raises(InvalidInput, match="is not a multiple of 1e-06 s"):
        kind_of("max_queue_delay", 64).check("max_queue_delay", delay)


def test_delays_that_are_applied_are_whole_microseconds_too() -> None:
    """Also those that are on no grid, such as an operator's pin."""
    space = knob_space(MODEL, {}, cores=2)

    with pytest.raises(InvalidInput, match="knob max_queue_delay: 1e-07 s is not a multiple of 1e-06 s"):
        check(space, space.default.replace(max_queue_delay=1e-7), lambda name: kind_of(name, 64))
