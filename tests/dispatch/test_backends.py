"""What goes to a server, as its protocol has it; no server is needed to see it."""

from __future__ import annotations

import asyncio

import pytest
from tritonclient.grpc import service_pb2

from tests.dispatch.fakes import request
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.triton import _set_parameter
from tuner.dispatch.request import Refused, Status


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, "bool_param"),
        (-(2**63), "int64_param"),
        (2**63 - 1, "int64_param"),
        (2**63, "uint64_param"),
        (2**64 - 1, "uint64_param"),
        (0.5, "double_param"),
        ("a", "string_param"),
    ],
)
def test_parameters_have_a_field_that_holds_them(value: bool | int | float | str, field: str) -> None:
    """A whole number has two: each takes half of those that the other does not."""
    parameter = service_pb2.InferParameter()

    _set_parameter(parameter, value)

    assert parameter.WhichOneof("parameter_choice") == field
    assert getattr(parameter, field) == value


@pytest.mark.parametrize("version", ["abc", "1.5", "-1", "9" * 30])
def test_tensorflow_serving_has_no_version_that_is_no_number(version: str) -> None:
    """KServe's clients name versions by texts."""

    async def main() -> None:
        connection = connect("tfserving://127.0.0.1:1/m")
        asked = request(version=version)
        with pytest.raises(Refused, match="has no version") as refused:
            await connection.infer("m", asked, asked.inputs)
        assert refused.value.status is Status.NOT_FOUND
        await connection.close()

    asyncio.run(main())
