"""What the statuses of servers mean for a batch, and for the server."""

from __future__ import annotations

import grpc
import pytest

from tuner.dispatch.backends.channel import failure
from tuner.dispatch.backends.connection import Doubtful, Lost
from tuner.dispatch.request import Refused, Status

Code = grpc.StatusCode
NOT_READY = "Request for unknown model: 'm' version 1 is not at ready state"
MEANINGS: dict[grpc.StatusCode, tuple[type[Exception], Status | None]] = {
    Code.CANCELLED: (Lost, None),
    Code.UNAVAILABLE: (Lost, None),
    Code.NOT_FOUND: (Doubtful, Status.NOT_FOUND),
    Code.UNIMPLEMENTED: (Doubtful, Status.UNSUPPORTED),
    Code.PERMISSION_DENIED: (Doubtful, Status.UNAVAILABLE),
    Code.UNAUTHENTICATED: (Doubtful, Status.UNAVAILABLE),
    Code.INVALID_ARGUMENT: (Refused, Status.INVALID),
    Code.FAILED_PRECONDITION: (Refused, Status.INVALID),
    Code.OUT_OF_RANGE: (Refused, Status.INVALID),
    Code.RESOURCE_EXHAUSTED: (Refused, Status.EXHAUSTED),
    Code.DEADLINE_EXCEEDED: (Refused, Status.DEADLINE),
    Code.INTERNAL: (Refused, Status.INTERNAL),
    Code.UNKNOWN: (Refused, Status.INTERNAL),
    Code.DATA_LOSS: (Refused, Status.INTERNAL),
    Code.ABORTED: (Refused, Status.INTERNAL),
    Code.ALREADY_EXISTS: (Refused, Status.INTERNAL),
}


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
@pytest.mark.parametrize("words", ["", "no", "unexpected inference input 'GOAWAY' Socket closed"])
def test_every_status_has_a_meaning(code: grpc.StatusCode, words: str) -> None:
    """Whatever the server repeats of the request."""
    found = failure(code, words, "a:1")

    assert (type(found), getattr(found, "status", None)) == MEANINGS[code]
    assert str(found) == f"a:1: {words or code.name}"


@pytest.mark.parametrize("words", ["Received RST_STREAM with error code 2", "Stream removed"])
def test_a_connection_that_was_cut_off(words: str) -> None:
    """gRPC says so by INTERNAL or UNKNOWN; with another status the words are a server's."""
    assert [type(failure(code, words, "a:1")) for code in (Code.INTERNAL, Code.UNKNOWN)] == [Lost, Lost]
    assert type(failure(Code.INVALID_ARGUMENT, words, "a:1")) is Refused


def test_a_version_that_a_triton_had_once() -> None:
    """A request may name it: the server is not lost for that."""
    found = failure(Code.UNAVAILABLE, NOT_READY, "a:1")

    assert isinstance(found, Doubtful)
    assert found.status is Status.UNAVAILABLE
