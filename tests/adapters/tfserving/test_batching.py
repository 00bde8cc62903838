"""Parameters of a version as knobs."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.adapters.tfserving.batching import (
    VERSION_KNOBS,
    batch_limit,
    parse_batching,
    read_batching,
    rewrite,
    write_batching,
)
from tuner.adapters.tfserving.knobs import kind_of
from tuner.errors import AdapterError

FILE = """
max_batch_size { value: 128 }
batch_timeout_micros { value: 2500 }
num_batch_threads { value: 4 }
allowed_batch_sizes: 16
allowed_batch_sizes: 128
pad_variable_length_inputs: true
"""


def parsed(text: str | None = FILE) -> Any:
    return parse_batching(text, "here")


def test_reading() -> None:
    """Durations become seconds, absent numbers the server's defaults, a list the number of its sizes."""
    assert read_batching(parsed(), VERSION_KNOBS) == {
        "max_batch_size": 128,
        "batch_timeout": 0.0025,
        "max_enqueued_batches": 10,
        "allowed_batch_sizes": 2,
    }


def test_without_a_file_nothing_is_batched() -> None:
    """So it reads as batches of 1; and batches of 1 are written as no file."""
    assert set(read_batching(parsed(None), VERSION_KNOBS).items()) == {
        ("max_batch_size", 1),
        ("batch_timeout", 0),
        ("max_enqueued_batches", 0),
        ("allowed_batch_sizes", 0),
    }
    assert write_batching(rewrite(parsed(), {"max_batch_size": 1, "batch_timeout": 0.0})) is None


def test_an_empty_file_has_the_servers_defaults() -> None:
    """A thousand rows, no wait."""
    assert read_batching(parsed(""), ["max_batch_size"])["max_batch_size"] == 1000


def test_what_is_no_knob_stays() -> None:
    """Padding and threads are the operator's; allowed sizes end with the new limit."""
    text = write_batching(rewrite(parsed(), {"max_batch_size": 32, "batch_timeout": 0.001}))

    assert parsed(text) == parsed(
        """
        max_batch_size { value: 32 } batch_timeout_micros { value: 1000 } num_batch_threads { value: 4 }
        allowed_batch_sizes: 16 allowed_batch_sizes: 32 pad_variable_length_inputs: true
        """
    )


def test_a_file_of_our_own_has_a_long_queue() -> None:
    """A full queue refuses requests that were served before."""
    made = rewrite(None, {"max_batch_size": 8, "batch_timeout": 0.0})

    assert made.max_enqueued_batches.value == 1000


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [12]), (2, [6, 12]), (3, [3, 6, 12]), (9, [1, 3, 6, 12])]
)
def test_allowed_sizes_by_their_number(count: int, sizes: list[int]) -> None:
    """The limit, half of it, and so on."""
    made = rewrite(None, {"max_batch_size": 12, "allowed_batch_sizes": count})

    assert list(made.allowed_batch_sizes) == sizes


def test_the_operators_allowed_sizes_stay() -> None:
    """If as many are wanted as there are, and they end where they must."""
    made = rewrite(parsed(), {"max_batch_size": 128, "allowed_batch_sizes": 2})

    assert list(made.allowed_batch_sizes) == [16, 128]


def test_with_splitting_the_limit_is_that_of_execution() -> None:
    """Requests of more rows go on being served; no batch is larger than the largest request."""
    splitting = parsed("max_batch_size { value: 64 } enable_large_batch_splitting { value: true }")

    made = rewrite(splitting, {"max_batch_size": 8})

    assert (made.max_batch_size.value, made.max_execution_batch_size.value) == (64, 8)
    assert read_batching(made, ["max_batch_size"])["max_batch_size"] == 8
    assert (batch_limit(splitting), batch_limit(parsed())) == (64, 8192)


def test_what_the_operator_runs_is_within_the_limit() -> None:
    """Else it could not come back after a change that was worse."""
    large = parsed("max_batch_size { value: 10000 }")
    limit = batch_limit(large)

    kind_of("max_batch_size", limit).check("max_batch_size", 10_000)

    assert (limit, batch_limit(None)) == (10_000, 8192)


def test_text_that_is_none() -> None:
    """The message says where and what."""
    with pytest.raises(AdapterError, match=r"here: 1:1.*no_such_field"):
        parsed("no_such_field: 1")
