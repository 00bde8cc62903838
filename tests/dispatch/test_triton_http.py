"""Batches to Triton over HTTP: what is sent, and what answers mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatch.fakes import request
from tests.dispatch.front.echo import Echo, running
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.connection import Connection, Doubtful
from tuner.dispatch.backends.http_client import HttpAnswer
from tuner.dispatch.backends.triton_http import JSON_LENGTH, failure, question_of, reply_of
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor, TraceContext

LENGTH = JSON_LENGTH.lower().encode()
TENSORS = (
    Tensor("float", "FP32", (2, 2), bytes(range(16))),
    Tensor("half", "FP16", (2, 1), b"abcd"),
    Tensor("brain", "BF16", (2,), b"efgh"),
    Tensor("text", "BYTES", (2,), b"\x03\0\0\0a\0b\x00\0\0\0"),
    Tensor("bool", "BOOL", (2,), b"\0\1"),
    Tensor("long", "UINT64", (2,), b"\xff" * 16),
    Tensor("none", "INT8", (2, 0), b""),
)


def asked(service: Echo, ask: Callable[[Connection], Awaitable[Any]], model: str = "echo") -> Any:
    """Return what a connection to a server that speaks the protocol finds."""

    async def main(port: int) -> Any:
        connection = connect([f"triton://127.0.0.1:1/{model}?http={port}"])
        try:
            return await ask(connection)
        finally:
            await connection.close()

    with running(service, FrontConfig(http=("127.0.0.1", 0))) as fronts:
        assert fronts.http_address is not None
        return asyncio.run(main(fronts.http_address[1]))


def test_every_type_of_values_comes_back() -> None:
    """As it was sent, with its name and shape, and with the model's version."""
    service = Echo()

    reply = asked(service, lambda one: one.infer("echo", Request("m", TENSORS), TENSORS))

    assert reply == Reply(TENSORS, "3")
    assert service.requests[0].inputs == TENSORS


def test_what_requests_of_a_batch_have_in_common() -> None:
    """Their outputs, version and parameters; and the trace of one."""
    service = Echo()
    trace = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
    parameters = {"flag": True, "number": 7, "share": 0.5, "word": "a", "binary_data_output": False}
    like = request(outputs=("float",), version="3", parameters=parameters, trace=trace)

    reply = asked(service, lambda one: one.infer("echo", like, TENSORS))

    (found,) = service.requests
    assert reply.outputs == TENSORS[:1]
    assert (found.outputs, found.version) == (("float",), "3")
    assert found.parameters == {"flag": True, "number": 7, "share": 0.5, "word": "a"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.INVALID, Refused),
        (Status.NOT_FOUND, Doubtful),
        (Status.EXHAUSTED, Refused),
        (Status.UNAVAILABLE, Doubtful),
        (Status.INTERNAL, Refused),
    ],
)
def test_what_a_server_refuses(status: Status, kind: type[Exception]) -> None:
    """Its status and its words are handed on."""
    like = request()

    with pytest.raises(kind, match=f"it is {status.name}") as raised:
        asked(Echo(), lambda one: one.infer(status.name, like, like.inputs), status.name)

    if isinstance(raised.value, Refused):
        assert raised.value.status is status


def test_whether_it_is_there() -> None:
    """A probe goes the way of the batches: over HTTP."""
    assert asked(Echo(), lambda one: one.ready("echo", 5.0))
    assert not asked(Echo(), lambda one: one.ready("slow", 5.0), "slow")
    assert not asked(Echo(), lambda one: one.ready("nobody", 5.0), "nobody")

    async def nobody() -> bool:
        connection = connect(["triton://127.0.0.1:1/m?http=2"])
        try:
            assert (connection.address, connection.probed_at) == ("127.0.0.1:1", "127.0.0.1:2")
            return await connection.ready("m", 5.0)
        finally:
            await connection.close()

    assert not asyncio.run(nobody())


MEANINGS = {
    400: (Refused, Status.INVALID),
    401: (Doubtful, Status.UNAVAILABLE),
    403: (Doubtful, Status.UNAVAILABLE),
    404: (Doubtful, Status.NOT_FOUND),
    409: (Refused, Status.INTERNAL),
    413: (Refused, Status.TOO_LARGE),
    418: (Refused, Status.INVALID),
    429: (Refused, Status.EXHAUSTED),
    499: (Doubtful, Status.UNAVAILABLE),
    500: (Refused, Status.INTERNAL),
    501: (Doubtful, Status.UNSUPPORTED),
    502: (Doubtful, Status.UNAVAILABLE),
    503: (Doubtful, Status.UNAVAILABLE),
    504: (Doubtful, Status.UNAVAILABLE),
    301: (Refused, Status.INTERNAL),
    204: (Refused, Status.INTERNAL),
}


@pytest.mark.parametrize("code", MEANINGS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":"no such\\nthing."}', "no such thing"),
        (b"<html>\r\nproxy \xff</html>", "<html> proxy \ufffd</html>"),
        (b"", None),
    ],
)
def test_every_status_has_a_meaning(code: int, body: bytes, words: str | None) -> None:
    """Whoever gives it: Triton, or a proxy before it."""
    found = failure(HttpAnswer(code, {}, body), "a:1")

    assert (type(found), getattr(found, "status", None)) == MEANINGS[code]
    assert str(found) == f"a:1: {words or f'status {code}'}"


def test_a_parameter_that_json_does_not_have() -> None:
    """It is the request's fault."""
    with pytest.raises(Refused, match="finite") as refused:
        question_of(request(parameters={"share": float("nan")}), ())

    assert refused.value.status is Status.INVALID


def body_of(size: int = 4, length: int | None = None, **fields: object) -> HttpAnswer:
    """Return an answer with one output of 4 bytes."""
    output = {"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": size}}
    head = json.dumps({"model_version": "1", "outputs": [output | fields]}).encode()
    return HttpAnswer(200, {LENGTH: b"%d" % (len(head) if length is None else length)}, head + b"abcd")


def test_an_answer_that_can_be_read() -> None:
    """Before the others: they differ from it in one thing each."""
    assert reply_of(body_of()) == Reply((Tensor("y", "FP32", (1,), b"abcd"),), "1")


@pytest.mark.parametrize(
    "answer",
    [
        body_of(size=3),
        body_of(size=5),
        body_of(size=-4),
        body_of(length=-1),
        body_of(length=0),
        body_of(length=10**9),
        body_of(name=1),
        body_of(shape=[-1]),
        body_of(shape="1"),
        body_of(parameters={}),
        body_of()._replace(headers={LENGTH: b"some"}),
        body_of()._replace(headers={}),
        HttpAnswer(200, {}, b""),
        HttpAnswer(200, {}, b"\xff"),
        HttpAnswer(200, {}, b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}]}'),
    ],
)
def test_an_answer_that_cannot_be_read(answer: HttpAnswer) -> None:
    """It is no reply, and nothing worse."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        reply_of(answer)


@given(st.binary(max_size=200), st.binary(max_size=8))
def test_any_bytes(body: bytes, length: bytes) -> None:
    """They are a reply, or none."""
    with suppress(ValueError):
        reply_of(HttpAnswer(200, {LENGTH: length}, body))
    assert str(failure(HttpAnswer(503, {}, body), "a:1")).startswith("a:1: ")
