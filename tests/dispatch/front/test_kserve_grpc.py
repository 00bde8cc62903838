"""KServe's protocol over gRPC, spoken by the stock client of Triton."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.dispatch.front.echo import PATIENCE, Echo, running
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.front.config import GrpcServer
from tuner.dispatch.front.messages.datatype import MOST_TEXTS, MOST_VALUES
from tuner.dispatch.front.messages.kserve import read_request
from tuner.dispatch.request import Refused, Status

ANY = ("127.0.0.1", 0)
SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def service() -> Echo:
    return Echo()


@pytest.fixture(scope="module")
def address(service: Echo, grpc_server: GrpcServer) -> Iterator[str]:
    config = FrontConfig(grpc=ANY, grpc_server=grpc_server, largest_message=1_000_000)
    with running(service, config) as fronts:
        assert fronts.grpc_address is not None
        yield "{}:{}".format(*fronts.grpc_address)


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


@pytest.fixture(scope="module")
def infer(address: str) -> Iterator[Callable[..., Any]]:
    """Send bytes to a method, past the stock client's own checks."""
    with grpc.insecure_channel(address) as channel:

        def call(data: bytes, method: str = "ModelInfer", **options: Any) -> bytes:
            return bytes(channel.unary_unary(SERVICE + method)(data, **{"timeout": PATIENCE, **options}))

        yield call


def tensor(name: str, array: np.ndarray) -> Any:
    made = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


X = tensor("x", np.ones((1, 2), np.float32))
ARRAYS = [np.array([[0, 1, 1]]).astype(kind) for kind in ("?", *"bhilBHILefd")] + [
    np.array([[b"", b"a\xff\0", "é".encode()]], np.object_),
    np.zeros((0, 3), np.float32),
    np.array(7, np.int64).reshape(()),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_every_type_comes_back(client: Any, array: np.ndarray) -> None:
    """The values of a tensor are those that were sent."""
    result = client.infer("echo", [tensor("x", array)], request_id="7")

    assert result.as_numpy("x").tolist() == array.tolist()
    assert result.get_output("x").datatype == np_to_triton_dtype(array.dtype)
    assert (result.get_response().id, result.get_response().model_version) == ("7", "3")


def test_bf16_comes_back(client: Any) -> None:
    """It has no numpy type of its own."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[1.5, -2]], ml_dtypes.bfloat16)

    made = triton.InferInput("x", array.shape, "BF16")
    made.set_data_from_numpy(array)

    assert client.infer("echo", [made]).get_response().raw_output_contents[0] == array.tobytes()


TYPED = {
    "BOOL": ("bool_contents", [True, False], "?"),
    "INT8": ("int_contents", [-128, 127], "i1"),
    "INT16": ("int_contents", [-5, 5], "<i2"),
    "INT32": ("int_contents", [-(2**31), 5], "<i4"),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1], "<i8"),
    "UINT8": ("uint_contents", [0, 255], "u1"),
    "UINT16": ("uint_contents", [1, 2], "<u2"),
    "UINT32": ("uint_contents", [1, 2**32 - 1], "<u4"),
    "UINT64": ("uint64_contents", [1, 2**64 - 1], "<u8"),
    "FP32": ("fp32_contents", [0.5, float("inf")], "<f4"),
    "FP64": ("fp64_contents", [0.5, 1e300], "<f8"),
}


def message(datatype: str = "FP32", shape: Any = (1, 2), **contents: Any) -> Any:
    made = service_pb2.ModelInferRequest(model_name="echo")
    made.inputs.add(name="x", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(made.inputs[0].contents, field).extend(values)
    return made


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_contents_are_taken(infer: Callable[..., bytes], datatype: str) -> None:
    """The other form in which KServe's clients may send values."""
    field, values, dtype = TYPED[datatype]

    answer = infer(message(datatype, **{field: values}).SerializeToString())

    (content,) = service_pb2.ModelInferResponse.FromString(answer).raw_output_contents
    assert content == np.array(values, dtype).tobytes()


def test_typed_texts_are_taken(infer: Callable[..., bytes]) -> None:
    """Each is preceded by its length in the answer."""
    answer = infer(message("BYTES", bytes_contents=[b"ab", b""]).SerializeToString())

    (content,) = service_pb2.ModelInferResponse.FromString(answer).raw_output_contents
    assert content == b"\x02\0\0\0ab\0\0\0\0"


def raw(*contents: bytes, **options: Any) -> Any:
    made = message(**options)
    made.raw_input_contents.extend(contents)
    return made


def with_parameter(of: str, name: str, **value: Any) -> Any:
    made = raw(bytes(8))
    place = {"request": made, "input": made.inputs[0], "output": made.outputs.add(name="x")}[of]
    for kind, one in value.items():
        setattr(place.parameters[name], kind, one)
    return made


def twice() -> Any:
    made = raw(bytes(8), bytes(8))
    made.inputs.add(name="x", datatype="FP32", shape=(1, 2))
    return made


INVALID = {
    "no protobuf": b"\xff\xff",
    "no inputs": service_pb2.ModelInferRequest(model_name="echo"),
    "two of a name": twice(),
    "no such type": raw(b"", datatype="FP31"),
    "too few bytes": raw(bytes(7)),
    "too many bytes": raw(bytes(9)),
    "negative": raw(bytes(8), shape=(-1, 2)),
    "overflow": raw(b"", shape=(2**62, 2**62, 0, 2**62)),
    "many dimensions": raw(bytes(8), shape=(1,) * 33),
    "two contents": raw(bytes(8), bytes(8)),
    "raw and typed": raw(bytes(8), fp32_contents=[1, 2]),
    "values missing": message(),
    "values of another type": message(int_contents=[1, 2]),
    "values out of range": message("UINT8", uint_contents=[1, 256]),
    "values for FP16": message("FP16", fp32_contents=[1, 2]),
    "text with a wrong length": raw(b"\x09\0\0\0ab", datatype="BYTES", shape=(1,)),
    "half a length": raw(b"\x09\0", datatype="BYTES", shape=(1,)),
    "one text too many": raw(bytes(12), datatype="BYTES", shape=(2,)),
    "negative timeout": with_parameter("request", "timeout", int64_param=-1),
    "timeout in words": with_parameter("request", "timeout", string_param="soon"),
}
INVALID["overflow"].raw_input_contents[:] = [bytes(4)]
UNSUPPORTED = {
    "sequence": with_parameter("request", "sequence_id", int64_param=5),
    "named sequence": with_parameter("request", "sequence_id", string_param="s"),
    "shared memory": with_parameter("input", "shared_memory_region", string_param="r"),
    "shared memory of an output": with_parameter("output", "shared_memory_region", string_param="r"),
    "classification": with_parameter("output", "classification", int64_param=2),
}


@pytest.mark.parametrize(
    ("code", "bad"),
    [(grpc.StatusCode.INVALID_ARGUMENT, one) for one in INVALID.values()]
    + [(grpc.StatusCode.UNIMPLEMENTED, one) for one in UNSUPPORTED.values()],
    ids=[*INVALID, *UNSUPPORTED],
)
def test_a_bad_request_is_refused(
    infer: Callable[..., bytes], service: Echo, code: grpc.StatusCode, bad: Any
) -> None:
    """With a sentence, and it does not reach the dispatcher."""
    before = len(service.requests)

    with pytest.raises(grpc.RpcError) as failure:
        infer(bad if isinstance(bad, bytes) else bad.SerializeToString())

    assert failure.value.code() == code
    assert len(failure.value.details()) > 10
    assert len(service.requests) == before


class Uncounted:
    """Stands for many entries: how many there are may be asked, and none may be looked at."""

    def __len__(self) -> int:
        return 800_000

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the entries were looked at before they were counted")


@pytest.mark.parametrize("field", ["inputs", "outputs", "parameters"])
def test_entries_are_counted_before_they_are_looked_at(field: str) -> None:
    """Looking at hundreds of thousands of them would hold up everybody for seconds."""
    good = raw(bytes(8))
    names = ("model_name", "model_version", "inputs", "outputs", "parameters", "raw_input_contents")
    asked = SimpleNamespace(**{name: getattr(good, name) for name in names} | {field: Uncounted()})

    with pytest.raises(Refused, match=f"{field}, but got 800000") as refused:
        read_request(asked, None)

    assert refused.value.status is Status.INVALID


def test_many_dimensions_are_counted_before_they_are_looked_at() -> None:
    """As many as a message may have."""
    with pytest.raises(Refused, match="at most 32 dimensions, but got 100000"):
        read_request(raw(bytes(8), shape=(1,) * 100_000), None)


def many_values(inputs: int, each: int) -> Any:
    made = service_pb2.ModelInferRequest(model_name="echo")
    for number in range(inputs):
        one = made.inputs.add(name=str(number), datatype="INT8", shape=[each])
        one.contents.int_contents.extend([1] * each)
    return made


def test_many_values_belong_into_raw_contents() -> None:
    """Each is looked at, so that all inputs together may have a number of them; an image fits."""
    image = read_request(many_values(1, 224 * 224 * 3), None)
    with pytest.raises(Refused, match="send the values in raw_input_contents") as refused:
        read_request(many_values(2, MOST_VALUES // 2 + 1), None)

    assert image.inputs[0].content == b"\1" * (224 * 224 * 3)
    assert refused.value.status is Status.TOO_LARGE


def test_texts_of_all_inputs_are_counted_together() -> None:
    """Each is looked at, also if they are raw."""
    made = raw(bytes(4 * MOST_TEXTS), bytes(4), datatype="BYTES", shape=(MOST_TEXTS,))
    made.inputs.add(name="y", datatype="BYTES", shape=[1])

    with pytest.raises(Refused, match=f"at most {MOST_TEXTS} elements of BYTES"):
        read_request(made, None)


@pytest.mark.parametrize("status", Status)
def test_a_refusal_has_its_code(client: Any, status: Status) -> None:
    """And the dispatcher's sentence."""
    codes = {Status.INVALID: "INVALID_ARGUMENT", Status.UNSUPPORTED: "UNIMPLEMENTED"}
    codes |= {Status.EXHAUSTED: "RESOURCE_EXHAUSTED", Status.TOO_LARGE: "RESOURCE_EXHAUSTED"}
    codes |= {Status.DEADLINE: "DEADLINE_EXCEEDED"}

    with pytest.raises(InferenceServerException) as failure:
        client.infer(status.name, [X])

    assert failure.value.status() == f"StatusCode.{codes.get(status, status.name)}"
    assert failure.value.message() == f"it is {status.name}"


def test_an_error_of_ours_is_internal(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Its words stay in the log."""
    with pytest.raises(InferenceServerException) as failure:
        client.infer("broken", [X])

    assert failure.value.status() == "StatusCode.INTERNAL"
    assert "secret" not in failure.value.message()
    assert "secret" in caplog.text


def test_what_is_not_there_is_not_found(client: Any) -> None:
    """A session, or a version of its model."""
    for ask, arguments in (
        (client.infer, ("other", [X])),
        (client.get_model_metadata, ("other",)),
        (client.get_model_metadata, ("echo", "2")),
    ):
        with pytest.raises(InferenceServerException) as failure:
            ask(*arguments)
        assert failure.value.status() == "StatusCode.NOT_FOUND"


def test_questions_about_the_server_are_answered(client: Any) -> None:
    """Whether it lives, and what its models expect."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert not client.is_model_ready("slow")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata().name == "servetune"
    metadata = client.get_model_metadata("echo", "3")
    assert [(one.name, one.datatype, list(one.shape)) for one in metadata.inputs] == [
        ("x", "FP32", [-1, 2]),
        ("text", "BYTES", [-1, 1]),
    ]
    assert list(metadata.versions) == ["1", "3"]


def test_what_a_scheduler_cannot_offer_is_unimplemented(client: Any) -> None:
    """Such as loading a model."""
    with pytest.raises(InferenceServerException, match="RepositoryModelLoad is not offered") as failure:
        client.load_model("echo")

    assert failure.value.status() == "StatusCode.UNIMPLEMENTED"


def test_outputs_are_selected(client: Any, service: Echo) -> None:
    """Only those that are named come back; parameters and version reach the dispatcher."""
    inputs = [X, tensor("y", np.ones((1, 1), np.int8))]

    result = client.infer(
        "echo", inputs, "3", [triton.InferRequestedOutput("y")], parameters={"a": 1, "b": "c"}, timeout=10**9
    )

    assert [one.name for one in result.get_response().outputs] == ["y"]
    request = service.requests[-1]
    assert (request.version, request.outputs, request.parameters) == ("3", ("y",), {"a": 1, "b": "c"})


@pytest.mark.parametrize(
    ("options", "slo"),
    [
        ({}, None),
        ({"client_timeout": 50}, 50),
        ({"timeout": 40_000_000}, 40),
        ({"headers": {"x-slo-ms": "30000"}}, 30),
        ({"client_timeout": 50, "timeout": 40_000_000, "headers": {"x-slo-ms": "30000"}}, 30),
        ({"client_timeout": 20, "headers": {"x-slo-ms": "30000"}}, 20),
    ],
)
def test_the_nearest_deadline_counts(
    client: Any, service: Echo, options: dict[str, Any], slo: float | None
) -> None:
    """Of the call, its header, and its parameter."""
    before = time.monotonic()
    client.infer("echo", [X], **options)
    after = time.monotonic()

    deadline = service.requests[-1].deadline
    assert (deadline is None) == (slo is None)
    # gRPC says a deadline in tenths of a second.
    assert deadline is None or slo is None or before - 0.5 <= deadline - slo <= after + 0.5


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("0", "DEADLINE_EXCEEDED"),
        ("-5", "DEADLINE_EXCEEDED"),
        ("nan", "INVALID_ARGUMENT"),
        ("x", "INVALID_ARGUMENT"),
    ],
)
def test_a_deadline_in_the_past_is_refused_at_once(
    client: Any, service: Echo, header: str, status: str
) -> None:
    """And one that is no number."""
    before = len(service.requests)

    with pytest.raises(InferenceServerException) as failure:
        client.infer("echo", [X], headers={"x-slo-ms": header})

    assert failure.value.status() == f"StatusCode.{status}"
    assert len(service.requests) == before


def test_a_message_that_is_too_large_is_refused(client: Any) -> None:
    """Others are answered before and after it."""
    large = tensor("x", np.zeros((1, 300_000), np.float32))

    with pytest.raises(InferenceServerException, match="larger than max") as failure:
        client.infer("echo", [large])

    assert failure.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    assert client.infer("echo", [X]).as_numpy("x").shape == (1, 2)


def test_a_client_that_cancels_withdraws_its_request(client: Any, service: Echo) -> None:
    """The dispatcher's call is cancelled."""
    service.waiting.clear()
    service.cancelled.clear()
    call = client.async_infer("slow", [X], callback=lambda result, error: None)
    assert service.waiting.wait(PATIENCE)

    call.cancel()

    assert service.cancelled.wait(PATIENCE)


def test_no_answer_is_swapped(client: Any) -> None:
    """Each of many callers at the same time gets its own values back."""

    def ask(number: int) -> bool:
        array = np.array([[number, -number]], np.int64)
        result = client.infer("echo", [tensor("x", array)], request_id=str(number))
        same: bool = result.as_numpy("x").tolist() == array.tolist()
        return same and result.get_response().id == str(number)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(500)))
