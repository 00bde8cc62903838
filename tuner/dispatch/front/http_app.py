"""KServe's HTTP service, as an ASGI application.

It is one class without a framework, so that bodies are limited, timed and unpacked before anything reads
them. ``tuner bench fronts`` has FastAPI beside it: about as many requests per second, without any of this.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from tuner import __version__
from tuner.dispatch.front.access import TOKEN_NEEDED, Access
from tuner.dispatch.front.calls import UNSUPPORTED
from tuner.dispatch.front.inference import EXTENSIONS, NAME
from tuner.dispatch.front.intake import FAILED, Held, Intake, Oversize, milliseconds
from tuner.dispatch.front.messages.kserve_json import metadata_body, read_body, reply_body
from tuner.dispatch.request import Refused, Reply, Status

__all__ = ["CODES", "Application"]

CODES = {
    Status.INVALID: 400,
    Status.NOT_FOUND: 404,
    Status.UNSUPPORTED: 501,
    Status.EXHAUSTED: 429,
    Status.TOO_LARGE: 413,
    Status.DEADLINE: 504,
    Status.UNAVAILABLE: 503,
    Status.INTERNAL: 500,
}
SERVER, LIVE, READY = "v2", "v2/health/live", "v2/health/ready"
MODEL, MODEL_READY, INFER = "v2/models", "v2/models/ready", "v2/models/infer"
"""Addresses without the names of models and versions."""
FREE = {LIVE, READY, MODEL_READY}
"""Addresses that need no token: orchestrators ask them."""
NOTHING = "there is nothing here: the dispatcher has KServe's health, metadata and infer, which begin at /v2"
TRITONS = frozenset({"repository", "systemsharedmemory", "cudasharedmemory", "trace", "logging"})
TRITONS_OF_MODELS = frozenset({"config", "stats", "trace", "generate", "generate_stream"})
"""What Triton has beyond KServe's protocol, by the word behind `v2`, and by that behind a model."""
OF_ALL_MODELS = "stats"
"""What stands in the place of a model's name where Triton's statistics of all models are asked."""
LONGEST_UPLOAD = 10.0
"""From the head of a request to the end of its body, s."""
LENGTH = "inference-header-content-length"
LARGEST_LENGTH = 12
"""Digits of a length in a header."""
WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""The encodings of a body that are read, and how zlib knows them."""
MOST_MEMBERS = 16
"""Parts of a body that are packed one by one: behind each of them the rest of the body is copied."""
_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What a request gets."""

    code: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: bytes = b"application/json"


class Question(NamedTuple):
    """What a request asks."""

    session: str
    """The session that its address names; may be empty."""
    version: str
    headers: Mapping[str, str]
    receive: Any
    """Returns the next part of the body."""


class Application:
    """Answers the requests of KServe's clients.

    Args:
        intake: Takes the inferences.
        access: Says who may ask for more than whether the server is ready.
        largest: Bytes of a body.
    """

    def __init__(self, intake: Intake, access: Access, largest: int) -> None:
        self._intake = intake
        self._access = access
        self._largest = largest
        self._answers: dict[str, Callable[[Question], Awaitable[Answer]]] = {
            LIVE: self._live,
            READY: self._ready,
            MODEL_READY: self._ready,
            SERVER: self._server,
            MODEL: self._model,
            INFER: self._infer,
        }

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        scope["state"]["task"] = asyncio.current_task()  # the connection cancels it when it is lost
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            answer = await self._answer(scope, headers, receive)
        except Refused as refused:
            answer = _refusal(CODES[refused.status], refused.reason)
        except asyncio.CancelledError:
            return  # the connection is lost; uvicorn would log a traceback
        except Exception:
            _log.exception("a request over HTTP failed in the dispatcher")
            answer = _refusal(500, FAILED)
        length = (b"content-length", b"%d" % len(answer.body))
        lines = [(b"content-type", answer.kind), length, *answer.headers]
        await send({"type": "http.response.start", "status": answer.code, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Any) -> Answer:
        """Find who answers.

        Raises:
            Refused: Nobody does.
        """
        path, session, version = _place(scope["raw_path"])
        if problem := _not_offered(path):
            raise Refused(Status.UNSUPPORTED, problem)
        if path not in self._answers:
            raise Refused(Status.NOT_FOUND, NOTHING)
        method, wanted = scope["method"], "POST" if path == INFER else "GET"
        if method != wanted and not (method == "HEAD" and wanted == "GET"):
            reason = f"{method} is not offered here; use {wanted}"
            return _refusal(405, reason, ((b"allow", wanted.encode()),))
        if path not in FREE and not self._access.allows(headers.get("authorization")):
            return _refusal(401, TOKEN_NEEDED, ((b"www-authenticate", b"Bearer"),))
        if session:
            self._check_session(session, path)
        return await self._answers[path](Question(session, version, headers, receive))

    def _check_session(self, session: str, path: str) -> None:
        """Check that there is a session, or say that it is a word of Triton's.

        Raises:
            Refused: There is none of this name.
        """
        try:
            self._intake.check_session(session)
        except Refused:
            if path == MODEL and session == OF_ALL_MODELS:
                raise Refused(Status.UNSUPPORTED, UNSUPPORTED.format(method=session)) from None
            raise

    async def _live(self, _question: Question) -> Answer:
        return _json({"live": True})

    async def _ready(self, question: Question) -> Answer:
        if question.session:
            ready = await self._intake.serves(question.session, question.version)
        else:
            ready = self._intake.ready()
        return _json({"ready": ready}, 200 if ready else 503)

    async def _server(self, _question: Question) -> Answer:
        return _json({"name": NAME, "version": __version__, "extensions": EXTENSIONS})

    async def _model(self, question: Question) -> Answer:
        return _json(metadata_body(await self._intake.metadata(question.session, question.version)))

    async def _infer(self, question: Question) -> Answer:
        headers = question.headers
        slo = milliseconds(headers.get("x-slo-ms"))
        # Room grows with what arrives: what a header claims takes no memory, and no room from others.
        with self._intake.room.hold(0) as held:
            body = await self._body(headers, question.receive, held)
        inference = read_body(body, _number(headers, LENGTH), question.session, question.version, slo)
        binary: list[tuple[bytes, bytes]] = []

        def write(reply: Reply) -> bytes:
            answer, of_json = reply_body(reply, inference)
            if of_json is not None:
                binary.append((LENGTH.encode(), b"%d" % of_json))
            return answer

        answer = await self._intake.infer(inference.request, headers.get, write)
        if not binary:
            return Answer(200, answer)
        return Answer(200, answer, tuple(binary), b"application/octet-stream")

    async def _body(self, headers: Mapping[str, str], receive: Any, held: Held) -> bytes:
        """Return the body of a request, unpacked.

        Args:
            headers: Of the request.
            receive: Returns the next part of the body.
            held: Counts the parts that have come.

        Raises:
            Refused: It is too large, comes too slowly or not whole, or is packed in a way that is not read;
                or all bodies together are too large.
        """
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding != "identity" and encoding not in WINDOWS:
            raise Refused(Status.INVALID, "Content-Encoding is gzip or deflate, if the body is packed at all")
        if (_number(headers, "content-length") or 0) > self._largest:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(LONGEST_UPLOAD):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(Status.INVALID, "the connection ended before the body")
                    part = message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) + len(part) > self._largest:
                        raise self._too_large()
                    held.add(len(part))
                    body += part
        except TimeoutError:
            raise Refused(Status.DEADLINE, f"the body did not come within {LONGEST_UPLOAD:g} s") from None
        return bytes(body) if encoding == "identity" else self._unpacked(bytes(body), WINDOWS[encoding])

    def _unpacked(self, body: bytes, window: int) -> bytes:
        """Return a packed body unpacked; its members, one behind the other, are parts of it."""
        parts, left = list[bytes](), self._largest + 1
        for _ in range(MOST_MEMBERS):
            unpacking = zlib.decompressobj(window)
            try:
                parts.append(unpacking.decompress(body, left))
            except zlib.error:
                raise Refused(Status.INVALID, "the body is not packed as Content-Encoding says") from None
            left -= len(parts[-1])
            if not left:
                raise self._too_large()
            if not unpacking.eof:
                raise Refused(Status.INVALID, "the packed body ends too early")
            if not (body := unpacking.unused_data):
                return b"".join(parts)
        raise Refused(Status.INVALID, f"a packed body has at most {MOST_MEMBERS} members")

    def _too_large(self) -> Oversize:
        return Oversize(f"a request has at most {self._largest} bytes")


def _place(path: bytes) -> tuple[str, str, str]:
    """Return an address without the names in it, the session and the version; these may be empty."""
    # The parts are decoded one by one, because a name may hold a slash.
    parts = [unquote_to_bytes(part).decode(errors="replace") for part in path.split(b"/") if part]
    session = version = ""
    if parts[:2] == ["v2", "models"]:
        session = "".join(parts[2:3])
        del parts[2:3]
        if parts[2:3] == ["versions"]:
            version = "".join(parts[3:4])
            del parts[2:4]
    return "/".join(parts), session, version


def _not_offered(path: str) -> str:
    """Return that an address, without names, is one of Triton's own; empty if it is none."""
    first, *others = path.removeprefix("v2/").split("/")
    own = others[0] if first == "models" and others else first
    if not path.startswith("v2/") or own not in (TRITONS if own == first else TRITONS_OF_MODELS):
        return ""
    return UNSUPPORTED.format(method=own)


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > LARGEST_LENGTH:
        raise Refused(Status.INVALID, f"the header {name} is a number of bytes")
    return int(text)


def _json(content: Any, code: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(code, json.dumps(content).encode(), headers)


def _refusal(code: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return _json({"error": reason}, code, headers)
