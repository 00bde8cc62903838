"""KServe's protocol over HTTP, spoken by the stock client of Triton and by plain sockets."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import h11
import numpy as np
import pytest

from tests.dispatch.front.echo import PATIENCE, Echo, running
from tuner.dispatch.front import FrontConfig, http_app
from tuner.dispatch.front.http_app import CODES
from tuner.dispatch.front.http_server import FrontConnection
from tuner.dispatch.front.messages.datatype import MOST_VALUES
from tuner.dispatch.front.messages.kserve_json import Inference, reply_body
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor

LARGEST = 100_000
Address = tuple[str, int]


@pytest.fixture(scope="module")
def service() -> Echo:
    return Echo()


@pytest.fixture(scope="module")
def address(service: Echo) -> Iterator[Address]:
    with running(service, FrontConfig(http=("127.0.0.1", 0), largest_message=LARGEST)) as fronts:
        assert fronts.http_address is not None
        yield fronts.http_address


class Got:
    """An answer."""

    def __init__(self, address: Address, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        connection = HTTPConnection(*address, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        self.code, self.headers, self.body = response.status, response.headers, response.read()
        connection.close()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def body(data: Any = (1.5, 2), **more: Any) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": data, **more}
    return {"inputs": [{name: value for name, value in tensor.items() if value is not None}]}


def infer(address: Address, what: Any, session: str = "echo", **headers: str) -> Got:
    packed = what if isinstance(what, bytes) else json.dumps(what).encode()
    return Got(address, "POST", f"/v2/models/{session}/infer", packed, **headers)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("UINT64", [2**53 + 1, 2**64 - 1]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP16", [0.5, -2.0]),
        ("FP32", [0.25, 1e38]),
        ("FP64", [0.1, 1e300]),
        ("BF16", [1.5, -3e38]),
        ("BYTES", ["é\n", ""]),
    ],
)
def test_values_come_back_in_json(address: Address, datatype: str, values: list[Any]) -> None:
    """Flat, or in lists of lists as their shape says."""
    answers = [infer(address, body(data, datatype=datatype)) for data in (values, [values])]
    coarse = {"BF16": 0.01, "FP32": 1e-6}.get(datatype)

    for answer in answers:
        (output,) = answer.json["outputs"]
        assert answer.code == 200
        assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, [1, 2])
        assert output["data"] == (pytest.approx(values, rel=coarse) if coarse else values)


def test_binary_values_come_back(address: Address) -> None:
    """The JSON is as long as the header says, and the values follow it."""
    sent = np.array([3.5, -1], np.float32).tobytes()
    question = {"id": "7", **body(None, parameters={"binary_data_size": 8})}
    question["parameters"] = {"binary_data_output": True}
    head = json.dumps(question).encode()

    answer = infer(address, head + sent, Inference_Header_Content_Length=str(len(head)))

    length = int(answer.headers["Inference-Header-Content-Length"])
    found = json.loads(answer.body[:length])
    assert (found["id"], found["model_name"], found["model_version"]) == ("7", "echo", "3")
    assert found["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert answer.body[length:] == sent


def test_an_answer_in_json_has_a_number_of_values() -> None:
    """Writing more would hold up everybody; as binary data it may have them."""
    half = MOST_VALUES // 2 + 1
    reply = Reply(tuple(Tensor(name, "INT8", (1, half), bytes(half)) for name in "ab"))
    asked, binary = (Inference(Request("echo", ()), "", False, {"a": one}) for one in (False, True))

    with pytest.raises(Refused, match="ask for binary data") as refused:
        reply_body(reply, asked)
    answer, _ = reply_body(reply, binary)

    assert refused.value.status is Status.INVALID
    assert len(answer) > half


def test_each_output_is_as_asked(address: Address) -> None:
    """One in JSON and one binary; a third is not wanted."""
    question: dict[str, Any] = {
        "inputs": [
            {"name": name, "datatype": "INT8", "shape": [1], "data": [at]} for at, name in enumerate("abc")
        ],
        "outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": True}}],
    }

    answer = infer(address, question)

    length = int(answer.headers["Inference-Header-Content-Length"])
    assert [one["name"] for one in json.loads(answer.body[:length])["outputs"]] == ["a", "b"]
    assert answer.body[length:] == b"\1"


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe\0",
        b'{"inputs": ' + b"[" * 20_000,
        b'{"id": ' + b"9" * 5000 + b"}",
        {},
        {"inputs": []},
        {"inputs": {}},
        {"inputs": [1]},
        {**body(), "id": 7},
        {**body(), "outputs": [{"name": 1}]},
        {**body(), "outputs": [{"name": "x"}, {"name": "x"}]},
        {**body(), "parameters": {"a": [1]}},
        {**body(), "parameters": {"timeout": "soon"}},
        {**body(), "parameters": {"timeout": 10**400}},
        {**body(), "parameters": {"a": "\ud800"}},
        {**body(), "parameters": {"a": 2**64}},
        {**body(), "id": "\ud800"},
        body(["\ud800", ""], datatype="BYTES"),
        {"inputs": body()["inputs"] * 2},
        body(name=None),
        body(datatype="FP31"),
        body(datatype=None),
        body(shape=[1, "2"]),
        body(shape=[True, 2]),
        body(shape=[-1, -2]),
        body(shape=[2, 2]),
        body(shape=[10**30, 0]),
        body([], shape=[1, 0, 10**30]),
        body(shape=[10**4000, 10**4000]),
        body(shape=[-(10**4000)]),
        body([1]),
        body([1, "2"]),
        body([1, None]),
        body([1, 1e39]),
        body([1, 3.4e38], datatype="BF16"),
        body([1, 10**400]),
        body([[1], 2]),
        body([[[1, 2]], [3]]),
        body([1, 2.5], datatype="INT8"),
        body([1, 128], datatype="INT8"),
        body([1, True], datatype="INT8"),
        body([1, 0], datatype="BOOL"),
        body([1, 2], datatype="BYTES"),
        body(parameters={"binary_data_size": 8}),
        body(None, parameters={"binary_data_size": 8}),
        body(None, parameters={"binary_data_size": "8"}),
        json.dumps(body()).encode() + b"rest",
    ],
    ids=range(49),
)
def test_a_bad_body_is_refused(address: Address, service: Echo, bad: Any) -> None:
    """With 400 and a sentence, and it does not reach the dispatcher."""
    before = len(service.requests)

    answer = infer(address, bad)

    assert answer.code == 400
    assert len(answer.json["error"]) > 10
    assert len(service.requests) == before


@pytest.mark.parametrize("status", Status)
def test_a_refusal_has_its_code(address: Address, status: Status) -> None:
    """And the dispatcher's sentence."""
    answer = infer(address, body(), status.name)

    assert (answer.code, answer.json) == (CODES[status], {"error": f"it is {status.name}"})


@pytest.mark.parametrize(
    "place",
    [
        *("models/echo/config", "models/echo/versions/1/stats", "models/echo/trace/setting"),
        *("models/echo/generate", "repository/index", "repository/models/echo/load", "trace/setting"),
        *("logging", "systemsharedmemory/status", "cudasharedmemory/region/r/register"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_triton_has_beyond_the_protocol_is_not_offered(
    address: Address, method: str, place: str
) -> None:
    """It says so, as over gRPC, and not that there is no such model."""
    answer = Got(address, method, f"/v2/{place}")

    assert (answer.code, "is not offered" in answer.json["error"]) == (501, True)


def test_the_statistics_of_all_models_are_not_offered(
    address: Address, service: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's client asks for them where a model's name stands; a session may be called so all the same."""
    answer = Got(address, "GET", "/v2/models/stats")
    assert (answer.code, "is not offered" in answer.json["error"]) == (501, True)

    monkeypatch.setattr(service, "sessions", (*service.sessions, "stats"))

    assert Got(address, "GET", "/v2/models/stats").code == 200


def test_other_refusals(address: Address) -> None:
    """What is not there, not offered, too large, or too late."""
    sequence = {**body(), "parameters": {"sequence_id": 4}}
    shared = body(None, parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8})

    assert infer(address, sequence).code == infer(address, shared).code == 501
    assert infer(address, body(), "other").code == Got(address, "GET", "/v2/models/other").code == 404
    assert Got(address, "GET", "/v2/models/echo/versions/2").code == Got(address, "GET", "/").code == 404
    assert Got(address, "GET", "/v3").code == Got(address, "GET", "/v2/models").code == 404
    assert Got(address, "GET", "/v2/models/echo/infer").code == Got(address, "PUT", "/v2").code == 405
    assert infer(address, b" " * (LARGEST + 1)).code == 413
    assert infer(address, body(), x_slo_ms="0").code == 504
    assert infer(address, body(), x_slo_ms="x").code == infer(address, body(), x_slo_ms="inf").code == 400
    assert infer(address, body(), Inference_Header_Content_Length="9999").code == 400
    assert infer(address, body(), Inference_Header_Content_Length="-1").code == 400
    assert infer(address, body(), "broken").code == 500


def test_an_error_of_ours_is_internal(
    address: Address, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where a body is read; its words stay in the log."""

    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(http_app, "read_body", broken)

    answer = infer(address, body())

    assert (answer.code, answer.headers["Content-Type"]) == (500, "application/json")
    assert "the dispatcher failed" in answer.json["error"]
    assert "secret" in caplog.text


def test_questions_about_the_server_are_answered(address: Address) -> None:
    """Whether it lives, and what its models expect."""
    assert Got(address, "GET", "/v2/health/live").code == Got(address, "HEAD", "/v2/health/ready").code == 200
    assert Got(address, "GET", "/v2/models/echo/ready").code == 200
    assert Got(address, "GET", "/v2/models/slow/versions/1/ready").code == 503
    assert Got(address, "GET", "/v2").json["name"] == "servetune"
    metadata = Got(address, "GET", "/v2/models/echo/versions/3").json
    assert metadata["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    assert metadata["versions"] == ["1", "3"]


def test_deadline_version_and_parameters_reach_the_dispatcher(address: Address, service: Echo) -> None:
    """The nearest of two deadlines counts."""
    question = json.dumps({**body(), "parameters": {"timeout": 40_000_000, "a": 1}}).encode()

    before = time.monotonic()
    Got(address, "POST", "/v2/models/echo/versions/3/infer", question, x_slo_ms="90000")
    after = time.monotonic()

    request = service.requests[-1]
    assert (request.version, request.parameters) == ("3", {"a": 1})
    assert request.deadline is not None
    assert before <= request.deadline - 40 <= after


HEAD = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
EXPECTING = HEAD.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
GOOD = json.dumps(body()).encode()
LATER = HEAD % (b"later", len(GOOD)) + GOOD


def open_socket(address: Address, sent: bytes) -> socket.socket:
    client = socket.create_connection(address, timeout=PATIENCE)
    client.sendall(sent)
    return client


def answered(client: socket.socket) -> bytes:
    found = b""
    with client:
        while part := client.recv(65536):
            found += part
    return found


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (HEAD % (b"echo", len(GOOD)) + GOOD, b"200"),
        (HEAD % (b"echo", len(GOOD)) + GOOD[:-3], b"400"),
        (b"GET /v2/health", b"400"),
        (b"\x16\x03\x01\0\0", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000, b"400"),
        (b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"", b""),
    ],
)
def test_a_client_that_says_no_more_gets_its_answer(address: Address, sent: bytes, code: bytes) -> None:
    """A connection that is half closed, or never spoke HTTP."""
    client = open_socket(address, sent)
    client.shutdown(socket.SHUT_WR)

    assert answered(client)[9:12] == code


@pytest.fixture
def read_for_ever(monkeypatch: pytest.MonkeyPatch) -> list[h11.Connection]:
    """Connections whose end was read again and again: that ends with an error, and not never."""
    ends: dict[h11.Connection, int] = {}
    found: list[h11.Connection] = []
    read = h11.Connection.next_event

    def counted(connection: h11.Connection) -> Any:
        event = read(connection)
        if isinstance(event, h11.ConnectionClosed):
            ends[connection] = ends.get(connection, 0) + 1
        if ends.get(connection, 0) > 10:
            found.append(connection)
            raise RuntimeError("the end is read for ever")
        return event

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    return found


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        (LATER, [b"200"]),
        (LATER.replace(b"Host: x", b"Host: x\r\nConnection: close"), [b"200"]),
        (LATER * 3, [b"200"] * 3),
        (LATER + LATER[:30], [b"200", b"400"]),
        (LATER + LATER[:-3], [b"200", b"400"]),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" + LATER, [b"200"] * 2),
    ],
    ids=[
        "one",
        "the last",
        "three",
        "half a head behind it",
        "half a body behind it",
        "a quick one before it",
    ],
)
def test_a_client_that_says_no_more_while_its_request_waits(
    address: Address, read_for_ever: list[h11.Connection], sent: bytes, codes: list[bytes]
) -> None:
    """All that it asked is answered, then its connection ends; others are answered all the while."""
    client = open_socket(address, sent)
    client.shutdown(socket.SHUT_WR)

    assert Got(address, "GET", "/v2/health/live").code == 200
    assert re.findall(rb"HTTP/1\.1 (\d+)", answered(client)) == codes
    assert infer(address, body()).code == 200
    assert not read_for_ever


def test_requests_behind_large_ones(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one connection, one after the other and at once."""
    monkeypatch.setattr("uvicorn.protocols.http.h11_impl.HIGH_WATER_LIMIT", 0)
    connection = HTTPConnection(*address, timeout=PATIENCE)
    for _ in range(3):
        connection.request("POST", "/v2/models/echo/infer", GOOD)
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (200, True)
    connection.close()

    client = open_socket(address, EXPECTING % (b"later", len(GOOD)))
    assert client.recv(1000).startswith(b"HTTP/1.1 100")
    client.sendall(GOOD + HEAD % (b"echo", len(GOOD)) + GOOD)
    client.shutdown(socket.SHUT_WR)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answered(client)) == [b"200"] * 2

    client = open_socket(address, (HEAD % (b"later", len(GOOD)) + GOOD) * 3)
    client.shutdown(socket.SHUT_WR)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answered(client)) == [b"200"] * 3


@pytest.mark.parametrize("large_from", [1, 65_536])
def test_a_client_that_is_gone_withdraws_its_request(
    address: Address, service: Echo, large_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is reset is one nobody listens at, also behind a body whose last part is large."""
    monkeypatch.setattr("uvicorn.protocols.http.h11_impl.HIGH_WATER_LIMIT", large_from - 1)
    service.waiting.clear()
    service.cancelled.clear()
    client = open_socket(address, EXPECTING % (b"slow", len(GOOD)))
    assert client.recv(1000).startswith(b"HTTP/1.1 100")  # so that the whole body is its last part
    client.sendall(GOOD)
    assert service.waiting.wait(PATIENCE)

    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not closed
    client.close()

    assert service.cancelled.wait(PATIENCE)


def test_a_slow_client_keeps_nobody_waiting(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends half a body gets an answer at last; whoever sends half a head is cut off."""
    monkeypatch.setattr(http_app, "LONGEST_UPLOAD", 0.5)
    monkeypatch.setattr(FrontConnection, "longest_exchange", 2.0)
    half, less = open_socket(address, HEAD % (b"echo", 99) + b"{"), open_socket(address, b"POST /v2")

    assert infer(address, body()).code == 200
    assert answered(half)[9:12] == b"504"
    assert answered(less) == b""


def test_the_stock_client_works(address: Address) -> None:
    """Unchanged: every type, packed or not, in JSON or binary; swapped answers are impossible."""
    pytest.importorskip("geventhttpclient")
    triton = pytest.importorskip("tritonclient.http")
    from tritonclient.utils import InferenceServerException, np_to_triton_dtype

    arrays = [np.array([[0, 1, 1]]).astype(kind) for kind in ("?", *"bhilBHILefd")]
    arrays += [np.array([[b"a", "é".encode()]], np.object_), np.zeros((0, 2), np.float32)]

    def tensor(array: np.ndarray, binary: bool) -> Any:
        made = triton.InferInput("x", list(array.shape), np_to_triton_dtype(array.dtype))
        made.set_data_from_numpy(array, binary_data=binary)
        return made

    with triton.InferenceServerClient("{}:{}".format(*address), concurrency=8) as client:
        assert client.is_server_live()
        assert client.is_model_ready("echo")
        assert client.get_model_metadata("echo")["platform"] == "python"
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        for array in arrays:
            for binary in (True, False):
                wanted = [triton.InferRequestedOutput("x", binary_data=binary)]
                result = client.infer("echo", [tensor(array, binary)], outputs=wanted)
                found = result.as_numpy("x")
                texts = [str(one, "utf-8") if isinstance(one, bytes) else one for one in found.ravel()]
                sent = [str(one, "utf-8") if isinstance(one, bytes) else one for one in array.ravel()]
                assert (texts, found.shape) == (sent, array.shape)
        with pytest.raises(InferenceServerException, match="no session 'other'") as failure:
            client.infer("other", [tensor(arrays[0], True)])
        assert failure.value.status() == "404"
        packed = client.infer("echo", [tensor(arrays[-3], True)], request_compression_algorithm="gzip")
        assert packed.as_numpy("x").tolist() == arrays[-3].tolist()


def test_no_answer_is_swapped(address: Address) -> None:
    """Each of many callers at the same time gets its own values back."""

    def ask(number: int) -> bool:
        answer = infer(address, {"id": str(number), **body([number, -number], datatype="INT64")}).json
        return (answer["id"], answer["outputs"][0]["data"]) == (str(number), [number, -number])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))
