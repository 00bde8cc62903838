"""Model configurations to knobs and back."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from tuner.adapters.triton.configuration import (
    is_batching,
    normal_form,
    read_configuration,
    rewrite,
)
from tuner.errors import InvalidInput
from tuner.knobs import Configuration

KNOBS = ("max_batch_size", "max_queue_delay", "instances", "parameters.threads")
PLAIN: dict[str, Any] = {
    "name": "m",
    "version_policy": {"latest": {"num_versions": 1}},
    "max_batch_size": 64,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": ["256"]}],
    "instance_group": [{"name": "m_0", "count": 1, "kind": "KIND_CPU"}],
    "parameters": {"threads": {"string_value": "2"}, "path": {"string_value": "/x"}},
    "backend": "python",
}
BATCHED: dict[str, Any] = {
    **PLAIN,
    "dynamic_batching": {
        "preferred_batch_size": [4, 16],
        "max_queue_delay_microseconds": "500",
        "preserve_ordering": True,
    },
}


def values(size: int, delay: float = 0.0, instances: int = 1, threads: int = 2) -> Configuration:
    return Configuration(dict(zip(KNOBS, (size, delay, instances, threads), strict=True)))


def test_reading_without_batching() -> None:
    """No dynamic batching reads as a batch of 1 without delay."""
    assert read_configuration(PLAIN, KNOBS) == values(1)


def test_reading_with_batching() -> None:
    """The limit, the delay in seconds, the instances, and a parameter."""
    assert read_configuration(BATCHED, KNOBS) == values(64, 0.0005)


def test_reading_what_is_left_out() -> None:
    """A delay of 0 and a single instance are omitted by the server."""
    config = {"max_batch_size": 8, "dynamic_batching": {}}

    assert read_configuration(config, KNOBS[:3]) == Configuration(
        max_batch_size=8, max_queue_delay=0.0, instances=1
    )


@pytest.mark.parametrize(("key", "problem"), [("nothing", "threads"), ("path", "not a whole number")])
def test_reading_a_parameter_that_is_no_knob(key: str, problem: str) -> None:
    """A parameter must exist and be a whole number; the message lists those that exist."""
    with pytest.raises(InvalidInput, match=problem):
        read_configuration(PLAIN, [f"parameters.{key}"])


def test_batching_on() -> None:
    """The knobs' fields change, the rest stays, the input is not modified."""
    before = copy.deepcopy(PLAIN)

    config = rewrite(PLAIN, values(8, 0.002, 2, 4))

    assert before == PLAIN
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"] == {"max_queue_delay_microseconds": "2000"}
    assert config["instance_group"] == [{"name": "m_0", "count": 2, "kind": "KIND_CPU"}]
    assert config["parameters"]["threads"] == {"string_value": "4"}
    for field in ("name", "version_policy", "input", "backend"):
        assert config[field] == PLAIN[field]
    assert config["parameters"]["path"] == PLAIN["parameters"]["path"]


def test_batching_off_keeps_the_models_limit() -> None:
    """Clients may go on sending requests of several rows."""
    config = rewrite(rewrite(PLAIN, values(4, 0.01)), values(1))

    assert config == PLAIN


def test_the_models_limit_is_the_present_one() -> None:
    """It was deployed anew after the opening, and clients send larger requests than they could before."""
    anew = {**BATCHED, "max_batch_size": 128}

    lowered = rewrite(anew, values(8))

    assert rewrite(anew, values(1))["max_batch_size"] == 128
    assert lowered["parameters"]["servetune_max_batch_size"] == {"string_value": "128"}
    assert rewrite(lowered, values(1))["max_batch_size"] == 128


def test_batching_off_and_on_keeps_the_operators_options() -> None:
    """Preferred sizes come back as far as they fit, and so does everything else about batching."""
    off = rewrite(BATCHED, values(1))
    assert not is_batching(off)

    small = rewrite(off, values(8, 0.001))
    large = rewrite(small, values(64, 0.0005))

    assert small["dynamic_batching"] == {
        "preferred_batch_size": [4],
        "max_queue_delay_microseconds": "1000",
        "preserve_ordering": True,
    }
    assert large == BATCHED


def test_preferred_size_that_the_server_filled_in_is_dropped() -> None:
    """Triton reads back [maximum] where none was given; it must not outlive the maximum."""
    derived = {**PLAIN, "dynamic_batching": {"preferred_batch_size": [64]}}

    assert "preferred_batch_size" not in rewrite(derived, values(8))["dynamic_batching"]
    assert "preferred_batch_size" not in rewrite(derived, values(64))["dynamic_batching"]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_the_operators_options_survive_the_tuner(size: int) -> None:
    """The next process has opened what this one left, and finds them on the server; no mark stays behind."""
    left = rewrite(BATCHED, values(size, 0.001))

    assert rewrite(left, values(64, 0.0005)) == BATCHED
    smaller = rewrite(left, values(2))
    assert rewrite(smaller, values(64, 0.0005)) == BATCHED


def test_preferred_sizes_survive_what_the_server_fills_in() -> None:
    """Triton reads back [maximum] where no preferred size fits."""
    left = rewrite(BATCHED, values(2))
    left["dynamic_batching"]["preferred_batch_size"] = [2]

    assert rewrite(left, values(64, 0.0005)) == BATCHED


@pytest.mark.parametrize("size", [1, 8])
def test_what_the_operator_deploys_meanwhile_wins(size: int) -> None:
    """Over what was found at first, and over what is kept of it."""
    left = rewrite(BATCHED, values(size))
    anew = {**BATCHED, "dynamic_batching": {"preferred_batch_size": [2, 32], "priority_levels": "2"}}

    for present in (anew, {**left, "max_batch_size": 64, "dynamic_batching": anew["dynamic_batching"]}):
        assert rewrite(present, values(64))["dynamic_batching"] == anew["dynamic_batching"]
        small = rewrite(present, values(4))
        assert small["dynamic_batching"] == {"preferred_batch_size": [2], "priority_levels": "2"}
        assert rewrite(small, values(64)) == anew


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 100_000, '{"preferred_batch_size": "x"}', '{"colour": 1}', "1" * 5000],
)
def test_a_mark_that_makes_no_sense(text: str) -> None:
    """It is no reason to fail, or to send what the server refuses."""
    off = {
        **PLAIN,
        "parameters": PLAIN["parameters"] | {"servetune_dynamic_batching": {"string_value": text}},
    }

    assert rewrite(off, values(8)) == rewrite(PLAIN, values(8))
    assert rewrite(off, values(1)) == PLAIN


def test_reading_back_what_was_written() -> None:
    """Every configuration reads back as it takes effect: without batching there is no delay."""
    for size, delay, instances in itertools.product((1, 2, 32), (0.0, 0.001, 0.02), (1, 3)):
        wanted = values(size, delay, instances)

        expected = values(size, delay if size > 1 else 0.0, instances)
        assert read_configuration(rewrite(BATCHED, wanted), KNOBS) == expected


@pytest.mark.parametrize(
    "batching",
    [
        {},
        {"preferred_batch_size": [8]},
        {"max_queue_delay_microseconds": "0"},
        {"preferred_batch_size": [8], "max_queue_delay_microseconds": "0"},
    ],
)
def test_what_the_server_fills_in_makes_no_difference(batching: dict[str, Any]) -> None:
    """A derived preferred size and a delay of 0 read back differently and are the same."""
    sent = {"max_batch_size": 8, "dynamic_batching": batching}

    assert normal_form(sent) == {"max_batch_size": 8, "dynamic_batching": {}}


def test_a_real_difference_shows() -> None:
    """Any other difference remains, in the fields of the knobs and elsewhere."""
    changed = copy.deepcopy(BATCHED)
    changed["parameters"]["path"] = {"string_value": "/y"}

    assert normal_form(changed) != normal_form(BATCHED) == BATCHED
    assert normal_form({**PLAIN, "max_batch_size": 32}) != normal_form(PLAIN)
