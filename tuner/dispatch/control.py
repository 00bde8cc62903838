"""The control port: metrics and health for everybody, knobs for who has the token.

====================  ====================================================================================
``GET /metrics``      for Prometheus
``GET /healthz``      200 as long as the dispatcher works
``GET /readyz``       200 as long as every session has a backend, until it begins to end
``GET /v1/state``     sessions, backends, knobs, totals and how many instances there should be, as JSON
``POST /v1/knobs``    changes knobs, as ``{"deferral": 0.5}``: all of them or none; needs the token
``POST /v1/reload``   reads the file again; a file with mistakes changes nothing; needs the token
====================  ====================================================================================

The token is ``Authorization: Bearer TOKEN``. Requests that a browser sends for another page are refused: they
have an ``Origin``. On a loopback address only its own names are answered.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, Self

from tuner import __version__
from tuner.adapters.connection.credentials import is_loopback
from tuner.adapters.dispatch.client import LONGEST_CHANGE
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.knobs import POLICIES, current, set_knobs
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.totals import BOUNDS
from tuner.errors import InvalidInput, StorageError
from tuner.web.connection import Connection
from tuner.web.listener import Listener
from tuner.web.metrics import PROMETHEUS
from tuner.web.token import same_token

__all__ = ["Control"]

LONGEST_BODY = 16_384
"""Bytes."""
CHANGES = ("/v1/knobs", "/v1/reload")
Reload = Callable[[], Awaitable[None]]
JSON = b"application/json"


class _ControlConnection(Connection):
    """Lets a change take as long as its client waits for it."""

    longest_exchange = LONGEST_CHANGE


class _Answer(NamedTuple):
    status: int
    body: bytes
    kind: bytes = JSON


def _said(status: int, words: str) -> _Answer:
    return _Answer(status, json.dumps({"detail": words}).encode())


class Control:
    """Listens for operators on the running event loop.

    Args:
        dispatcher: What it shows and sets.
        metrics: Of the dispatcher.
        token: What changes need; None refuses all of them.
        host: Where it listens.
        reload: Reads the configuration again; raises `InvalidInput` or `StorageError` if that fails.
    """

    def __init__(
        self, dispatcher: Dispatcher, metrics: Metrics, token: str | None, host: str, reload: Reload
    ) -> None:
        self._dispatcher = dispatcher
        self._metrics = metrics
        self.token = token
        """May be set anew."""
        self._reload = reload
        own = f"[{host}]" if ":" in host else host
        self._names = {"localhost", "127.0.0.1", "[::1]", own} if is_loopback(host) else set[str]()
        self._listener: Listener | None = None

    async def start(self, address: tuple[str, int]) -> Self:
        """Listen at an address.

        Raises:
            InvalidInput: It cannot be used.
        """
        self._listener = await Listener.start(self, address, "listen.control", connection=_ControlConnection)
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._listener is not None
        return self._listener.address

    async def stop(self) -> None:
        """End every connection."""
        if self._listener is not None:
            await self._listener.stop()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one request (ASGI)."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        answer = self._refused(scope, headers)
        if answer is None:
            answer = await self._answered(scope, receive)
        start = {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(b"content-type", answer.kind)],
        }
        start["headers"] += [
            (b"content-length", str(len(answer.body)).encode()),
            (b"cache-control", b"no-store"),
        ]  # type: ignore[operator]
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})

    def _refused(self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> _Answer | None:
        """Return why a request is not looked at; None if it is."""
        name = headers.get(b"host", b"").decode("latin-1")
        name = name.rpartition(":")[0] if not name.endswith("]") and ":" in name else name
        if self._names and name not in self._names:
            return _said(421, "this host is not answered here")
        if scope["method"] == "GET":
            return None
        if scope["method"] != "POST" or scope["path"] not in CHANGES:
            return _said(405, f"there is GET, and POST of {' and '.join(CHANGES)}")
        return self._forbidden(headers, scope["path"])

    def _forbidden(self, headers: dict[bytes, bytes], path: str) -> _Answer | None:
        """Return why who asks may change nothing; None if they may."""
        if self.token is None:
            return _said(403, "no token is set: give listen.control_token_file")
        scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not same_token(given.strip(), self.token):
            return _said(401, "the token is missing or wrong")
        if b"origin" in headers:
            return _said(403, "changes from web pages are refused")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if path == "/v1/knobs" and kind != JSON:
            return _said(415, "knobs are JSON: send the header Content-Type: application/json")
        return None

    async def _answered(self, scope: MutableMapping[str, Any], receive: Any) -> _Answer:
        if scope["method"] == "POST":
            return await (self._set(receive) if scope["path"] == "/v1/knobs" else self._reloaded())
        pools = self._dispatcher.pools
        if scope["path"] == "/metrics":
            return _Answer(200, self._metrics.page(pools), PROMETHEUS.encode())
        if scope["path"] == "/v1/state":
            return _Answer(200, json.dumps(self.state()).encode())
        if scope["path"] == "/healthz":
            return _said(200, "ok")
        if scope["path"] == "/readyz":
            return self._readiness()
        return _said(404, "there are /metrics, /healthz, /readyz, /v1/state, /v1/knobs and /v1/reload")

    def _readiness(self) -> _Answer:
        """Say whether every session takes requests."""
        if self._dispatcher.ending:
            return _said(503, "the dispatcher is ending")
        away = [name for name in self._dispatcher.sessions if not self._dispatcher.ready(name)]
        return _said(503, f"no backend for {', '.join(away)}") if away else _said(200, "ok")

    def state(self) -> dict[str, Any]:
        """Return what there is, how it is set, and what was done."""
        pools = self._dispatcher.pools
        return {
            "server": "servetune-dispatch",
            "version": __version__,
            "time": asyncio.get_running_loop().time(),
            "policies": POLICIES,
            "bounds": BOUNDS,
            "knobs": current(pools),
            "totals": self._metrics.totals.to_json(),
            "sessions": [
                {
                    "name": session.name,
                    "slo": session.slo,
                    "waiting": pool.waiting(session.name),
                    "overdue": pool.overdue(session.name),
                    **self._metrics.totals.of(session.name).to_json(),
                }
                for pool in pools
                for session in pool.sessions
            ],
            "backends": [
                {"address": server.address, "up": server.up, "reason": server.reason}
                for pool in pools
                for server in pool.servers
            ],
            "pools": {
                name: {"instances": one.accelerators, "desired": one.desired, "reason": one.reason}
                for name, one in self._metrics.scaling(pools).items()
            },
        }

    async def _reloaded(self) -> _Answer:
        try:
            await self._reload()
        except (InvalidInput, StorageError) as error:
            return _said(422, str(error))
        return _Answer(200, json.dumps(self.state()).encode())

    async def _set(self, receive: Any) -> _Answer:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _said(400, "the request was cut off")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > LONGEST_BODY:
                return _said(413, f"a body has at most {LONGEST_BODY} bytes")
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            return _said(400, "the body is no JSON")
        if not isinstance(values, dict) or not all(_is_number(value) for value in values.values()):
            return _said(422, 'knobs are numbers: {"deferral": 0.5}')
        try:
            async with self._dispatcher.changing:
                await set_knobs(
                    self._dispatcher.pools, {name: float(value) for name, value in values.items()}
                )
        except InvalidInput as error:
            return _said(422, str(error))
        return _Answer(200, json.dumps(current(self._dispatcher.pools)).encode())


def _is_number(value: object) -> bool:
    """Whether a value of JSON is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300 and math.isfinite(value)
