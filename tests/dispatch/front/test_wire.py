"""Which messages are too much work to be read."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tests.dispatch.front.test_predict import question
from tuner.adapters.tfserving.schema import message
from tuner.dispatch.front.messages import kserve, predict
from tuner.dispatch.front.messages.datatype import MOST_VALUES
from tuner.dispatch.request import Refused, Status

LARGE = 4_000_000


def infer(datatype: str = "BYTES", shape: Any = (1,), **contents: Any) -> bytes:
    made = service_pb2.ModelInferRequest(model_name="echo")
    made.inputs.add(name="x", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(made.inputs[0].contents, field).extend(values)
    return bytes(made.SerializeToString())


def nested(field: int, content: bytes) -> bytes:
    """Return a field with this content of 4 bytes of length."""
    size = len(content)
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    return bytes([field << 3 | 2]) + length + content


RAW = service_pb2.ModelInferRequest(raw_input_contents=[bytes(LARGE)]).SerializeToString()
LIGHT = {
    "raw values": infer() + RAW,
    "one large text": infer(bytes_contents=[bytes(LARGE)]),
    "as many numbers as may come": infer("FP64", (MOST_VALUES,), fp64_contents=[1.5] * MOST_VALUES),
    "as many texts": infer(shape=(MOST_VALUES,), bytes_contents=[b"a"] * MOST_VALUES),
}
HEAVY = {
    "empty inputs": b"\x2a\0" * (LARGE // 2),
    "empty outputs": b"\x32\0" * (LARGE // 2),
    "empty raw contents": b"\x3a\0" * (LARGE // 2),
    "parameters": b"\x22\0" * (LARGE // 2),
    "unknown fields": b"\x78\0" * (LARGE // 2),
    "an empty group first": b"\x7b\x7c" + b"\x2a\0" * (LARGE // 2),
    "values": nested(5, nested(5, nested(2, b"\1" * LARGE))),
    "dimensions": nested(5, nested(3, b"\1" * LARGE)),
    "parameters of an input": nested(5, b"\x22\0" * (LARGE // 2)),
    "empty texts": nested(5, nested(5, b"\x42\0" * (LARGE // 2))),
}


@pytest.mark.parametrize("data", LIGHT.values(), ids=LIGHT)
def test_what_is_read_quickly_is_read(data: bytes) -> None:
    """However large it is."""
    found = kserve.parse(service_pb2.ModelInferRequest, data, kserve.PARTS)

    assert found.SerializeToString() == data


@pytest.mark.parametrize(
    "end", [b"\x3a", b"\x3a\xff", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 20, b"\x78", b"\x07"]
)
def test_what_is_malformed_is_refused(end: bytes) -> None:
    """Wherever it ends."""
    with pytest.raises(Refused, match="is no ModelInferRequest"):
        kserve.parse(service_pb2.ModelInferRequest, RAW + end, kserve.PARTS)


@pytest.mark.parametrize("data", HEAVY.values(), ids=HEAVY)
def test_what_takes_long_is_refused_before_it_is_read(data: bytes) -> None:
    """It would hold up everybody."""
    with pytest.raises(Refused, match="send the values in raw_input_contents") as refused:
        kserve.parse(service_pb2.ModelInferRequest, data, kserve.PARTS)

    assert refused.value.status is Status.TOO_LARGE


def test_predict_has_its_own_fields() -> None:
    """Content and texts are quick, lists of numbers are not."""
    kind = message("PredictRequest")
    quick = [
        question("INT8", (LARGE,), tensor_content=bytes(LARGE)),
        question("BYTES", (1,), string_val=[bytes(LARGE)]),
    ]

    for one in quick:
        assert kserve.parse(kind, one.SerializeToString(), predict.PARTS) == one
    with pytest.raises(Refused, match="tensor_content"):
        kserve.parse(kind, question("INT8", (LARGE,), int_val=[1] * LARGE).SerializeToString(), predict.PARTS)
