"""Targets, flags and knobs of TensorFlow Serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.adapters.live.knobs import DELAY_GRID, check
from tuner.adapters.tfserving.batching import VERSION_KNOBS, parse_batching, read_batching
from tuner.adapters.tfserving.flags import notes_on_flags, threads
from tuner.adapters.tfserving.knobs import kind_of, knob_space
from tuner.adapters.tfserving.restart_command import RESTART_KNOBS
from tuner.adapters.tfserving.target import parse_target
from tuner.errors import AdapterError, InvalidInput
from tuner.knobs import ApplyCost, Configuration, KnobSpace


def test_defaults() -> None:
    """TFServingPorts as the server has them by default."""
    target = parse_target("tfserving://gpu-1/mlp")

    assert (target.address, target.rest_port, target.model) == ("gpu-1:8500", 8501, "mlp")
    assert (target.base_path, target.label, target.signature) == (None, "", "serving_default")


def test_everything(tmp_path: Path) -> None:
    """Each option."""
    config, command = tmp_path / "models.config", tmp_path / "restart"
    config.touch()
    command.touch()
    target = parse_target(
        f"tfserving://[::1]:9000/a%20b?rest=9001&metrics=/m&base_path={tmp_path}&label=stable"
        f"&signature=embed&config={config}&restart={command}"
    )

    assert (target.address, target.rest_port, target.metrics_path) == ("[::1]:9000", 9001, "/m")
    assert (target.model, target.label, target.signature) == ("a b", "stable", "embed")
    assert (target.base_path, target.config, target.restart) == (tmp_path, config, command)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tfserving://host", "host and a model"),
        ("tfserving://host/m?rest=off", "rest='off' is not a port"),
        ("tfserving://host/m?rest=0", "rest=0 is not between"),
        ("tfserving://host/m?metrics=8002", "is not a path"),
        ("tfserving://host/m?base_path=models/m", "not an absolute path"),
        ("tfserving://host/m?base_path=/no/such/folder", "no such folder"),
        ("tfserving://host/m?config=/tmp", "no such file"),
        ("tfserving://host/m?version=3", "option 'version' is unknown"),
    ],
)
def test_targets_that_cannot_be(text: str, words: str) -> None:
    """What is wrong with it."""
    with pytest.raises(InvalidInput, match=words):
        parse_target(text)


@pytest.mark.parametrize("hosts", ["a,b", "a:8500,b:8500"])
def test_a_target_is_one_server(hosts: str) -> None:
    """The whole message."""
    with pytest.raises(InvalidInput) as raised:
        parse_target(f"tfserving://{hosts}/m")

    problem = f"'{hosts}' names several servers, and this target is one server"
    assert str(raised.value) == f"TARGET: {problem}; give each a target of its own"


def test_missing_flags_are_named() -> None:
    """Nothing if both are on, or if the process cannot be seen."""
    on = {"enable_batching": "true", "enable_per_model_batching_parameters": ""}

    assert notes_on_flags(on) == notes_on_flags(None) == []
    assert "--enable_per_model_batching_parameters" in notes_on_flags({"enable_batching": "true"})[0]
    assert "--enable_batching" not in notes_on_flags({"enable_batching": "true"})[0]


@pytest.mark.parametrize(
    ("seconds", "often"), [("1", True), ("60", True), ("", True), ("300", False), ("0", False), ("-1", False)]
)
def test_a_server_that_looks_for_versions_too_seldom(seconds: str, often: bool) -> None:
    """With 0 it does so at its start only: no version of ours would ever be loaded, nor a label moved."""
    flags = {"enable_batching": "1", "enable_per_model_batching_parameters": "1"}

    notes = notes_on_flags({**flags, "file_system_poll_wait_seconds": seconds})

    assert len(notes) == (not often)
    assert all("start it with --file_system_poll_wait_seconds=1" in note for note in notes)


def test_threads_of_the_server(tmp_path: Path) -> None:
    """From flags and from the file that one of them names."""
    file = tmp_path / "batching.pbtxt"
    file.write_text("num_batch_threads { value: 6 }")

    found = threads({"batching_parameters_file": str(file), "tensorflow_inter_op_parallelism": "3"})

    assert found == {"batch_threads": 6, "inter_op": 3, "intra_op": 0}
    with pytest.raises(AdapterError, match="cannot be understood"):
        threads({"tensorflow_intra_op_parallelism": "many"})


def space(
    grids: dict[str, tuple[float, ...]] | None = None,
    *,
    versions: bool = True,
    restart: bool = False,
    rows: int = 1,
    limit: int = 8192,
    running: dict[str, float] | None = None,
) -> KnobSpace:
    values = {"max_batch_size": 1.0, **dict.fromkeys((*VERSION_KNOBS[1:], *RESTART_KNOBS), 0.0)}
    return knob_space(
        grids or {},
        values | (running or {}),
        versions=versions,
        restart=restart,
        limit=limit,
        rows=rows,
        cores=4,
    )


def test_knobs_by_what_may_be_touched() -> None:
    """A folder gives two, a restart command three more, neither none."""
    assert space().names == ("max_batch_size", "batch_timeout")
    assert space(versions=False).size == 1
    assert space(restart=True).names[2:] == ("batch_threads", "inter_op", "intra_op")
    costs = {knob.name: knob.apply_cost for knob in space(restart=True).knobs}
    assert costs["batch_timeout"] is ApplyCost.RELOAD
    assert costs["inter_op"] is ApplyCost.RESTART


def test_further_knobs_by_name() -> None:
    """They are knobs when a grid names them."""
    grids = {"max_enqueued_batches": (10.0, 100.0), "allowed_batch_sizes": (0.0, 1.0, 3.0)}

    assert set(space(grids).names) == {"max_batch_size", "batch_timeout", *grids}
    effective = space(grids).effective({"max_batch_size": 1, "max_enqueued_batches": 10})
    assert effective["max_enqueued_batches"] == 0


@pytest.mark.parametrize(
    ("grids", "more", "words"),
    [
        ({"inter_op": (1.0,)}, {}, "restart="),
        ({"max_batch_size": (1.0,)}, {"versions": False}, "base_path="),
        ({"instances": (1.0,)}, {}, "the knobs are max_batch_size, batch_timeout"),
        ({"max_batch_size": (1.0, 128.0)}, {"limit": 64}, "between 1 and 64"),
        ({"batch_timeout": (2.0,)}, {}, "like 2ms"),
        ({"batch_timeout": (0.0, 1.5e-6)}, {}, "not a multiple of 1e-06 s"),
        ({"allowed_batch_sizes": (15.0,)}, {}, "how many"),
        ({"max_batch_size": (1.5,)}, {}, "whole number"),
    ],
)
def test_grids_that_cannot_be(grids: dict[str, tuple[float, ...]], more: dict[str, Any], words: str) -> None:
    """What to do instead."""
    with pytest.raises(InvalidInput, match=words):
        space(grids, **more)


def test_rows_leave_small_limits_out() -> None:
    """Except 1, which is no batching."""
    assert space(rows=5).knobs[0].grid == (1, 8, 16, 32)


@given(
    size=st.integers(2, 8192),
    timeout=st.integers(0, 1_000_000),
    threads=st.lists(st.integers(0, 1024), min_size=3, max_size=3),
)
def test_default_grids_contain_what_runs(size: int, timeout: int, threads: list[int]) -> None:
    """So that it is judged as what it is, and can come back after a change."""
    batching = parse_batching(
        f"max_batch_size {{ value: {size} }} batch_timeout_micros {{ value: {timeout} }}", "test"
    )
    running = Configuration(
        read_batching(batching, VERSION_KNOBS[:2]),
        **dict(zip(RESTART_KNOBS, map(float, threads), strict=True)),
    )

    assert running in space(restart=True, running=dict(running))


def test_what_could_not_be_set_again_is_in_no_grid() -> None:
    """A server may run what the tuner would refuse to set."""
    assert space(running={"batch_timeout": 3.0}).knobs[1].grid == DELAY_GRID


def test_configurations_are_checked() -> None:
    """Values off the grid are fine, impossible ones are not."""
    check(space(), Configuration(max_batch_size=3, batch_timeout=0.0003), lambda name: kind_of(name, 8192))
    with pytest.raises(InvalidInput, match="batch_timeout"):
        check(space(), Configuration(max_batch_size=3, batch_timeout=-1), lambda name: kind_of(name, 8192))
