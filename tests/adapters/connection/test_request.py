"""Requests made from model metadata."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.request import Input, filled_inputs, input_bytes, input_shape
from tuner.adapters.triton.wire import encode
from tuner.errors import InvalidInput

ENDPOINT = Endpoint(wire="tuner.adapters.triton.wire", address="host:8001", model="m")


def test_open_dimensions_become_one() -> None:
    """The batch is one row, and what nobody gave is 1."""
    assert input_shape(Input("x", "FP32", (-1, 3, -1))) == [1, 3, 1]


@pytest.mark.parametrize("wanted", [(3, 224), (1, 3, 224)])
def test_wanted_shape_may_leave_the_batch_out(wanted: tuple[int, ...]) -> None:
    """A shape is given with or without its first dimension."""
    assert input_shape(Input("x", "FP32", (-1, 3, -1)), wanted) == [1, 3, 224]


@pytest.mark.parametrize("wanted", [(4, 224), (3,), (3, 224, 224, 9), (3, 0)])
def test_wanted_shape_must_fit(wanted: tuple[int, ...]) -> None:
    """Fixed dimensions cannot be overridden."""
    with pytest.raises(InvalidInput, match="does not fit"):
        input_shape(Input("x", "FP32", (-1, 3, -1)), wanted)


@pytest.mark.parametrize(
    ("datatype", "size"),
    [
        ("FP32", 4),
        ("FP16", 2),
        ("FP64", 8),
        ("BF16", 2),
        ("INT64", 8),
        ("UINT8", 1),
        ("BOOL", 1),
        ("BYTES", 12),
    ],
)
def test_content_has_the_size_of_its_type(datatype: str, size: int) -> None:
    """Six elements of each data type; a text of eight letters has its length before it."""
    content = input_bytes(Input("x", datatype, (-1, 6)), [1, 6], np.random.default_rng(0))

    assert len(content) == 6 * size


def test_unknown_type_is_refused() -> None:
    """The input and the known types are named."""
    with pytest.raises(InvalidInput, match="input x: its data type COMPLEX is unknown"):
        input_bytes(Input("x", "COMPLEX", (1,)), [1], np.random.default_rng(0))


def test_same_seed_makes_the_same_request() -> None:
    """Two inputs, reproducible, in the order of the model."""
    inputs = [Input("ids", "INT64", (-1, 4)), Input("text", "BYTES", (-1, 1))]
    raw = [encode(ENDPOINT, filled_inputs(inputs, {}, np.random.default_rng(1))) for _ in range(2)]
    request = service_pb2.ModelInferRequest.FromString(raw[0])

    assert raw[0] == raw[1]
    assert [tensor.name for tensor in request.inputs] == ["ids", "text"]
    assert set(np.frombuffer(request.raw_input_contents[0], "<i8")) <= {0, 1}


def test_shape_for_no_input_is_refused() -> None:
    """A misspelt input is named with the real ones."""
    with pytest.raises(InvalidInput, match="shape y: the model has no such input; its inputs are x"):
        list(filled_inputs([Input("x", "FP32", (-1, 1))], {"y": (1,)}, np.random.default_rng(0)))
