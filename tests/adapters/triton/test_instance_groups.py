"""Instances in several groups."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.adapters.triton.configuration import read_configuration, rewrite
from tuner.adapters.triton.instance_groups import on_gpu
from tuner.adapters.triton.knobs import knob_space
from tuner.errors import InvalidInput
from tuner.knobs import Role


def config(*groups: dict[str, Any]) -> dict[str, Any]:
    return {"name": "m", "max_batch_size": 8, "instance_group": list(groups)}


def gpu(number: int, count: int = 1, **more: bool) -> dict[str, Any]:
    return {"name": f"m_{number}", "kind": "KIND_GPU", "count": count, "gpus": [number], **more}


CPU = {"name": "m_cpu", "kind": "KIND_CPU", "count": 3}


def counts(found: dict[str, Any]) -> list[int]:
    return [group["count"] for group in found["instance_group"]]


def test_one_group_for_each_gpu() -> None:
    """One knob sets them all; the GPUs of each stay; grids do not end at the CPU's cores."""
    two = config(gpu(0), gpu(1))
    space = knob_space(two, {}, cores=1)

    changed = rewrite(two, space.default.replace(instances=3))

    assert next(knob for knob in space.knobs if knob.name == "instances").grid == (1, 2, 3, 4)
    assert counts(changed) == [3, 3]
    assert [group["gpus"] for group in changed["instance_group"]] == [[0], [1]]
    assert read_configuration(changed, ["instances"])["instances"] == 3


@pytest.mark.parametrize(
    ("groups", "places"),
    [
        ([{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1, 2, 3]}], 4),
        ([gpu(0, 2), gpu(1, 2), gpu(2, 7, passive=True)], 2),
        ([{"kind": "KIND_CPU", "count": 2}], 1),
        ([], 1),
    ],
)
def test_instances_on_all_gpus_execute_at_once(groups: list[dict[str, Any]], places: int) -> None:
    """The knob says how many there are on each; the server's parallelism is that of all."""
    space = knob_space(config(*groups), {}, cores=4)

    assert space.value_of(Role.PARALLELISM, space.default.replace(instances=2)) == 2 * places


@pytest.mark.parametrize(
    ("groups", "known"),
    [
        ([gpu(0), CPU], True),
        ([CPU, gpu(0, passive=True)], False),
        ([CPU, {"kind": "KIND_MODEL", "count": 1}], None),
        ([{"count": 1}], None),
        ([], None),
    ],
)
def test_where_the_instances_run(groups: list[dict[str, Any]], known: bool | None) -> None:
    """The model or the server may decide it."""
    assert on_gpu(config(*groups)) is known


def test_groups_that_differ_have_a_knob_each() -> None:
    """By name or by place, if the user names it; the others stay."""
    mixed = config(gpu(0, 2), CPU)
    grids = {"instances.m_0": (1.0, 2.0, 4.0), "instances.1": (1.0, 3.0)}

    assert "instances" not in knob_space(mixed, {}, cores=4).names
    space = knob_space(mixed, grids, cores=4)
    assert set(space.names) == {"max_batch_size", "max_queue_delay", *grids}
    assert read_configuration(mixed, grids) == {"instances.m_0": 2, "instances.1": 3}
    assert counts(rewrite(mixed, {"instances.m_0": 4})) == [4, 3]


def test_naming_a_group_replaces_the_knob_of_all() -> None:
    """Both would contradict each other."""
    space = knob_space(config(gpu(0), gpu(1)), {"instances.m_1": (1.0, 2.0)}, cores=4)

    assert "instances" not in space.names


def test_passive_groups_are_left_alone() -> None:
    """They take no requests of their own."""
    two = config(gpu(0), gpu(1, 7, passive=True))

    assert counts(rewrite(two, {"instances": 2})) == [2, 7]


@pytest.mark.parametrize("name", ["instances.2", "instances.bert"])
def test_unknown_group(name: str) -> None:
    """Those that there are stand in the message."""
    with pytest.raises(InvalidInput, match="its groups: m_0, m_1"):
        knob_space(config(gpu(0), gpu(1)), {name: (1.0,)}, cores=4)


def test_counts_are_whole_and_positive() -> None:
    """Like those of all."""
    with pytest.raises(InvalidInput, match="between 1 and 64"):
        knob_space(config(gpu(0)), {"instances.0": (0.0,)}, cores=4)
