"""Ten thousand damaged requests to the dispatcher in each of its protocols."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.dispatch.front.echo import Echo, running
from tests.dispatch.front.test_predict import LISTS, question
from tests.fuzz.mutation import damaged_bytes, damaged_text, rounds
from tests.fuzz.test_grpc import damaged
from tuner.adapters.tfserving.schema import message
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.front.messages.datatype import SIZES, split_elements
from tuner.dispatch.front.messages.kserve import parse, read_request
from tuner.dispatch.front.messages.kserve_json import read_body, reply_body
from tuner.dispatch.front.messages.predict import read_predict, write_predict
from tuner.dispatch.request import Refused, Reply, Request

pytestmark = pytest.mark.usefixtures("quiet")


def check(request: Request) -> None:
    """Check that what reaches the dispatcher is whole."""
    for tensor in request.inputs:
        elements = int(np.prod(tensor.shape, dtype=object))
        if tensor.datatype == "BYTES":
            assert len(split_elements(tensor.content)) == elements
        else:
            assert len(tensor.content) == elements * SIZES[tensor.datatype]
        assert tensor.name.encode()


def kserve(datatype: str, content: bytes, **values: Any) -> bytes:
    made = service_pb2.ModelInferRequest(model_name="echo", id="7")
    made.parameters["timeout"].int64_param = 5
    made.parameters["a"].string_param = "b"
    for name in "xy":
        made.inputs.add(name=name, datatype=datatype, shape=[1, 2])
        if content:
            made.raw_input_contents.append(content)
        for field, one in values.items():
            getattr(made.inputs[-1].contents, field).extend(one)
    made.outputs.add(name="x")
    return bytes(made.SerializeToString())


KSERVE = [
    kserve("FP32", bytes(8)),
    kserve("BYTES", b"\1\0\0\0a\0\0\0\0"),
    kserve("INT8", b"", int_contents=[1, -1]),
    kserve("BYTES", b"", bytes_contents=[b"a", b""]),
]
PREDICT = [question(kind, **{field: values}).SerializeToString() for kind, (field, values) in LISTS.items()]


@rounds
def test_kserve(random: Random) -> bool:
    """It is read, or refused in a sentence."""
    with contextlib.suppress(Refused):
        try:
            found = damaged(random, service_pb2.ModelInferRequest, random.choice(KSERVE)).SerializeToString()
        except Exception:  # the damage is no message: it goes as it is
            found = damaged_bytes(random, random.choice(KSERVE))
        check(read_request(parse(service_pb2.ModelInferRequest, found), 1.0))
        return True
    return False


@rounds
def test_predict(random: Random) -> bool:
    """It is read, or refused in a sentence; what is read can be answered."""
    with contextlib.suppress(Refused):
        found = parse(message("PredictRequest"), damaged_bytes(random, random.choice(PREDICT)))
        request = read_predict(found, None)
        check(request)
        write_predict(Reply(request.inputs, "1"), request.session, "")
        return True
    return False


JSON = [
    {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2.5], [3e3, -1]]},
    {"name": "y", "datatype": "BYTES", "shape": [2], "data": ["a", "é"]},
    {"name": "z", "datatype": "BOOL", "shape": [1, 2], "data": [True, False]},
    {"name": "w", "datatype": "UINT8", "shape": [3], "parameters": {"binary_data_size": 3}},
]
QUESTION = {
    "id": "7",
    "parameters": {"timeout": 1000, "binary_data_output": True},
    "outputs": [{"name": "x", "parameters": {"binary_data": False}}],
    "inputs": JSON,
}


@rounds
def test_json(random: Random) -> bool:
    """It is read, or refused in a sentence; what is read can be answered."""
    head = damaged_text(random, json.dumps(QUESTION)).encode(errors="surrogatepass")
    length = random.choice((len(head), len(head), None, len(head) + 1, 5))
    with contextlib.suppress(Refused):
        inference = read_body(head + b"abc", length, "echo", "", None)
        check(inference.request)
        reply_body(Reply(inference.request.inputs, "1"), inference)
        return True
    return False


Place = Callable[[], tuple[str, int]]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Where HTTP is spoken; a function, so that hypothesis prints it as such."""
    with running(Echo(), FrontConfig(http=("127.0.0.1", 0))) as fronts:
        address = fronts.http_address
        assert address is not None
        yield lambda: address


@rounds
def test_http(random: Random, place: Place) -> None:
    """Whoever says no more gets an answer, or an end; others are answered all the while."""
    body = json.dumps({"inputs": JSON[:3]}).encode()
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(place(), timeout=60) as client, contextlib.suppress(ConnectionError):
        client.sendall(damaged_bytes(random, head, 2) + body)
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(65536)
        assert not answer or answer.startswith(b"HTTP/1.1 ")
    if random.random() < 0.01:
        with socket.create_connection(place(), timeout=60) as client:
            client.sendall(head + body)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
