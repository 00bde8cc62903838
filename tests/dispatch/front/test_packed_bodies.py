"""Bodies over HTTP that are packed: which are read, and which are refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest

from tests.dispatch.front.echo import Echo
from tuner.dispatch.front.access import Access
from tuner.dispatch.front.http_app import MOST_MEMBERS, Application
from tuner.dispatch.front.intake import Intake

LARGEST = 100_000
GOOD = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, 2]}]}).encode()
TWO = gzip.compress(GOOD[:30]) + gzip.compress(GOOD[30:])


async def code_of(body: bytes, encoding: bytes) -> int:
    """Return the status of the answer to an inference."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-encoding", encoding)]
    scope = {"method": "POST", "raw_path": b"/v2/models/echo/infer", "headers": headers, "state": {}}
    await Application(Intake(Echo(), 3), Access(None), LARGEST)(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("body", "encoding", "code"),
    [
        (gzip.compress(GOOD), b"gzip", 200),
        (zlib.compress(GOOD), b"deflate", 200),
        (TWO, b"gzip", 200),
        (gzip.compress(GOOD) + gzip.compress(b""), b"gzip", 200),
        (gzip.compress(b" " * (LARGEST - len(GOOD))) + TWO, b"gzip", 200),
        (gzip.compress(b" " * (LARGEST + 1 - len(GOOD))) + TWO, b"gzip", 413),
        (gzip.compress(b" " * 10_000_000), b"gzip", 413),
        (gzip.compress(b"{}")[:-9], b"gzip", 400),
        (TWO[:-1], b"gzip", 400),
        (gzip.compress(GOOD) + b"more", b"gzip", 400),
        (gzip.compress(b"") * MOST_MEMBERS + gzip.compress(GOOD), b"gzip", 400),
        (b"{}", b"gzip", 400),
        (b"{}", b"br", 400),
    ],
    ids=[
        "gzip",
        "deflate",
        "two members",
        "an empty member behind it",
        "as large as one may be",
        "too large in three members",
        "too large",
        "half a member",
        "half of the second member",
        "more behind it",
        "too many members",
        "not packed",
        "packed otherwise",
    ],
)
def test_a_packed_body_is_read(body: bytes, encoding: bytes, code: int) -> None:
    """All of its members, if they are whole, and neither too many nor too large."""
    assert asyncio.run(code_of(body, encoding)) == code
