"""TensorFlow Serving's protocol, in its own messages, and by its stock client where there is TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from tests.dispatch.front.echo import PATIENCE, Echo, running
from tuner.adapters.tfserving.download import python_path
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.wire import NUMBERS, signature_inputs
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.front.config import GrpcServer
from tuner.dispatch.front.messages.datatype import DTYPES, MOST_VALUES
from tuner.dispatch.front.messages.predict import LARGEST_FILLED, read_predict, read_tensor
from tuner.dispatch.request import Refused

Predict = Callable[[Any], Any]


@pytest.fixture(scope="module")
def service() -> Echo:
    return Echo()


@pytest.fixture(scope="module")
def address(service: Echo, grpc_server: GrpcServer) -> Iterator[str]:
    with running(service, FrontConfig(grpc=("127.0.0.1", 0), grpc_server=grpc_server)) as fronts:
        assert fronts.grpc_address is not None
        yield "{}:{}".format(*fronts.grpc_address)


@pytest.fixture(scope="module")
def call(address: str) -> Iterator[Callable[[str, Any], Any]]:
    """Call a method of a service."""
    with grpc.insecure_channel(address) as channel:

        def ask(method: str, question: Any, **options: Any) -> Any:
            path = f"/tensorflow.serving.{method}"
            name = method.rpartition("/")[2]
            data = question if isinstance(question, bytes) else question.SerializeToString()
            answer = channel.unary_unary(path)(data, **{"timeout": PATIENCE, **options})
            return message(f"{name}Response").FromString(answer)

        yield ask


@pytest.fixture(scope="module")
def predict(call: Callable[..., Any]) -> Predict:
    return lambda question: call("PredictionService/Predict", question)


def question(datatype: Any = "FP32", shape: Any = (1, 2), session: Any = "echo", **values: Any) -> Any:
    made = message("PredictRequest")()
    made.model_spec.name = session
    tensor = made.inputs["x"]
    tensor.dtype = NUMBERS[datatype]
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    for field, value in values.items():
        if isinstance(value, bytes):
            setattr(tensor, field, value)
        else:
            getattr(tensor, field).extend(value)
    return made


LISTS = {
    "FP32": ("float_val", [0.5, -1]),
    "FP64": ("double_val", [0.1, 1e300]),
    "FP16": ("half_val", [0x3C00, 0xFFFF]),
    "BF16": ("half_val", [0x3F80, 0]),
    "INT8": ("int_val", [-128, 127]),
    "INT16": ("int_val", [-5, 5]),
    "INT32": ("int_val", [-(2**31), 5]),
    "UINT8": ("int_val", [0, 255]),
    "UINT16": ("int_val", [0, 65535]),
    "INT64": ("int64_val", [-(2**63), 2**63 - 1]),
    "UINT32": ("uint32_val", [0, 2**32 - 1]),
    "UINT64": ("uint64_val", [0, 2**64 - 1]),
    "BOOL": ("bool_val", [True, False]),
    "BYTES": ("string_val", [b"", b"\xff\0a"]),
}


@pytest.mark.parametrize("datatype", LISTS)
def test_every_type_comes_back(predict: Predict, datatype: str) -> None:
    """From its list and from its content, in its list."""
    field, values = LISTS[datatype]
    stored = DTYPES.get("UINT16" if datatype in ("FP16", "BF16") else datatype, "<u4")
    questions = [question(datatype, **{field: values})]
    if datatype != "BYTES":
        questions.append(question(datatype, tensor_content=np.array(values, stored).tobytes()))

    for one in questions:
        answer = predict(one)
        output = answer.outputs["x"]
        assert list(getattr(output, field)) == values
        assert (output.dtype, [dim.size for dim in output.tensor_shape.dim]) == (NUMBERS[datatype], [1, 2])
        assert (answer.model_spec.name, answer.model_spec.version.value) == ("echo", 3)
        assert answer.model_spec.signature_name == "serving_default"


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        (question(float_val=[7]), [7, 7]),
        (question(), [0, 0]),
        (question(shape=(), float_val=[3]), [3]),
        (question(shape=(0, 2)), []),
        (question("BYTES", string_val=[b"a"]), [b"a", b"a"]),
        (question("BYTES"), [b"", b""]),
    ],
)
def test_a_short_list_is_filled_up(predict: Predict, asked: Any, values: list[Any]) -> None:
    """With its last value, as TensorFlow does."""
    output = predict(asked).outputs["x"]

    assert list(output.string_val or output.float_val) == values


def test_outputs_are_selected_and_the_version_is_passed_on(call: Callable[..., Any], service: Echo) -> None:
    """With the deadline of the call."""
    asked = question(float_val=[7])
    asked.inputs["y"].CopyFrom(asked.inputs["x"])
    asked.output_filter.append("y")
    asked.model_spec.version.value = 3

    answer = call("PredictionService/Predict", asked)

    assert list(answer.outputs) == ["y"]
    assert service.requests[-1].version == "3"
    assert service.requests[-1].deadline is not None


def unknown_rank() -> Any:
    asked = question(float_val=[7])
    asked.inputs["x"].tensor_shape.unknown_rank = True
    return asked


def complex_numbers() -> Any:
    asked = question(float_val=[7])
    asked.inputs["x"].dtype = 8
    return asked


def of_model(**spec: Any) -> Any:
    asked = question(float_val=[7])
    for field, value in spec.items():
        setattr(asked.model_spec, field, value)
    return asked


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (b"\xff\xff", "INVALID_ARGUMENT"),
        (b"", "INVALID_ARGUMENT"),
        (question(float_val=[1, 2, 3]), "INVALID_ARGUMENT"),
        (question(shape=(-1, 2), float_val=[1, 2]), "INVALID_ARGUMENT"),
        (question("BYTES", tensor_content=b"ab"), "INVALID_ARGUMENT"),
        (question("INT8", int_val=[1, 128]), "INVALID_ARGUMENT"),
        (question(tensor_content=bytes(7)), "INVALID_ARGUMENT"),
        (unknown_rank(), "INVALID_ARGUMENT"),
        (complex_numbers(), "INVALID_ARGUMENT"),
        (of_model(signature_name="other"), "INVALID_ARGUMENT"),
        (of_model(version_label="stable"), "INVALID_ARGUMENT"),
        (of_model(name="other"), "NOT_FOUND"),
        (question(shape=(2**40,), float_val=[1]), "RESOURCE_EXHAUSTED"),
        (question(shape=(LARGEST_FILLED,)), "RESOURCE_EXHAUSTED"),
        (question("BYTES", (2**40,), string_val=[b"a" * 1000]), "RESOURCE_EXHAUSTED"),
        (question(session="UNAVAILABLE", float_val=[1]), "UNAVAILABLE"),
    ],
    ids=range(16),
)
def test_a_bad_request_is_refused(predict: Predict, asked: Any, code: str) -> None:
    """With a sentence."""
    with pytest.raises(grpc.RpcError) as failure:
        predict(asked)

    assert failure.value.code().name == code
    assert len(failure.value.details()) > 10


def test_many_values_belong_into_the_content() -> None:
    """Each in a list is looked at, so that all inputs together may have a number of them."""
    asked = question("INT8", (MOST_VALUES // 2 + 1,), int_val=[1] * (MOST_VALUES // 2 + 1))
    one = read_predict(asked, None)
    asked.inputs["y"].CopyFrom(asked.inputs["x"])

    with pytest.raises(Refused, match="send the values in tensor_content"):
        read_predict(asked, None)
    assert one.inputs[0].content == b"\1" * (MOST_VALUES // 2 + 1)


def test_a_server_may_answer_with_many_values() -> None:
    """TensorFlow Serving answers with lists."""
    count = MOST_VALUES + 1

    found = read_tensor("y", question("INT8", (count,), int_val=[-1] * count).inputs["x"])

    assert found.content == b"\xff" * count


@pytest.mark.parametrize("field", ["dim", "output_filter"])
def test_entries_are_counted_before_they_are_looked_at(field: str) -> None:
    """As many as a message may have."""
    asked = question(shape=(1,) * (100_000 if field == "dim" else 2), float_val=[1])
    asked.output_filter.extend(["y"] * (100_000 if field == "output_filter" else 0))

    with pytest.raises(Refused, match="but got 100000"):
        read_predict(asked, None)


def test_what_is_filled_up_is_counted_over_all_inputs() -> None:
    """A short message takes little memory."""
    asked = question(shape=(LARGEST_FILLED // 8,), float_val=[1])
    for number in range(3):
        asked.inputs[str(number)].CopyFrom(asked.inputs["x"])

    with pytest.raises(Refused, match="filled up"):
        read_predict(asked, None)


def test_metadata_and_status_are_known(call: Callable[..., Any]) -> None:
    """The one signature of a session, and which versions its model has."""
    asked = message("GetModelMetadataRequest")(metadata_field=["signature_def"])
    asked.model_spec.name = "echo"
    metadata = call("PredictionService/GetModelMetadata", asked)
    status = message("GetModelStatusRequest")()
    status.model_spec.name = "echo"
    versions = call("ModelService/GetModelStatus", status).model_version_status

    found = [(one.name, one.datatype, one.shape) for one in signature_inputs(metadata, "serving_default")]
    assert found == [("text", "BYTES", (-1, 1)), ("x", "FP32", (-1, 2))]
    assert [(one.version, one.state) for one in versions] == [(1, 30), (3, 30)]


def test_other_methods_are_not_offered(call: Callable[..., Any]) -> None:
    """Such as changing the server's configuration."""
    with pytest.raises(grpc.RpcError, match="HandleReloadConfigRequest is not offered") as failure:
        call("ModelService/HandleReloadConfigRequest", b"")

    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED


STOCK = """
import sys, grpc, numpy as np, tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc, get_model_metadata_pb2
stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(sys.argv[1]))
arrays = [np.array([[0, 1, 1]]).astype(kind) for kind in ("?", *"bhilBHILefd")]
arrays += [np.array([[b"a", b""]], object), np.array(7.5, np.float32), np.full((3, 4), 2.5, np.float32)]
arrays.append(tf.constant([[1.5, -2]], tf.bfloat16).numpy())
for array in arrays:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "echo"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(array, shape=array.shape))
    answer = stub.Predict(request, timeout=60)
    found = tf.make_ndarray(answer.outputs["x"])
    assert found.dtype == array.dtype and found.tolist() == array.tolist(), (found, array)
request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
request.model_spec.name = "echo"
signatures = get_model_metadata_pb2.SignatureDefMap()
assert stub.GetModelMetadata(request, timeout=60).metadata["signature_def"].Unpack(signatures)
assert sorted(signatures.signature_def["serving_default"].inputs) == ["text", "x"]
print("all came back")
"""


@pytest.mark.tfserving
def test_the_stock_client_works(address: str) -> None:
    """TensorFlow's own messages, made and read by its own functions."""
    answer = subprocess.run(
        [sys.executable, "-c", STOCK, address],
        env={**os.environ, "PYTHONPATH": python_path(), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.stdout.strip() == "all came back", answer.stderr[-3000:]
