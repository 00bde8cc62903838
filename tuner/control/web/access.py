"""Who may do what over HTTP: reading is free where the daemon listens, changing needs a token.

=====================  =====================================================================================
danger                 what is done about it
=====================  =====================================================================================
a stranger gives       orders need ``Authorization: Bearer TOKEN``, compared in constant time; without a token
orders                 in the daemon's file or environment nobody can give any
a page of somebody     no cookies, so a browser sends nothing by itself; orders must be ``application/json``,
else gives orders      and an ``Origin`` must be our own (no CORS header is ever sent)
another name that      while listening on a loopback address, only the names of it are answered
leads to us            (DNS rebinding); elsewhere those under ``hosts``, if any are given
floods                 bodies are small, and read only if the token is right; connections are few, the stalest
                       gives way to a new one; answers are limited in length
scripts in texts       the page builds text nodes only, and its policy allows no script but its own
=====================  =====================================================================================
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Coroutine, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from tuner.adapters.connection.credentials import check_private, is_loopback
from tuner.errors import InvalidInput

__all__ = ["Access", "Gate", "bearer", "read_token"]

SHORTEST_TOKEN = 16
LONGEST_BODY = 16_384
"""Bytes of a request's body."""
LONGEST_LENGTH = 20
"""Digits of a request's Content-Length."""
TOO_LONG = f"a body has at most {LONGEST_BODY} bytes"
PROBES = ("/healthz", "/readyz")
"""Asked for by address, whatever names there are; they tell nothing that is worth hiding."""
bearer = HTTPBearer(auto_error=False, description="The token of the daemon's file or environment.")


def read_token(path: Path | None, environment: str | None) -> str | None:
    """Return the token that orders need, from a file or else from the environment; None if there is none.

    Raises:
        InvalidInput: It is too short, or its file cannot be read or can be by everybody.
    """
    where, token = "SERVETUNE_TOKEN", environment
    if path is not None:
        where = f"http.token_file {path}"
        try:
            token = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "is no text"
            raise InvalidInput(where, f"cannot be read: {problem}") from None
        check_private(path, "http.token_file")
    token = (token or "").strip()
    if not token:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InvalidInput(
            where, f"needs at least {SHORTEST_TOKEN} ASCII characters", "make one with: openssl rand -hex 32"
        )
    return token


class Access:
    """Decides whether a request may give orders.

    Args:
        token: That orders need; None lets nobody give any.
    """

    def __init__(self, token: str | None) -> None:
        self._token = token

    @property
    def closed(self) -> bool:
        """Whether nobody can give orders."""
        return self._token is None

    @property
    def route(self) -> type[APIRoute]:
        """Routes of this class read nothing of a request that may not give orders."""
        require = self.require

        class OrderRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                answer = super().get_route_handler()

                async def checked(request: Request) -> Response:
                    await require(request)
                    return await answer(request)

                return checked

        return OrderRoute

    async def require(self, request: Request) -> None:
        """Refuse a request that may not give orders.

        Raises:
            HTTPException: 401, 403 or 415, with the reason.
        """
        if self._token is None:
            raise HTTPException(403, "no token is set: give http.token_file or SERVETUNE_TOKEN")
        given = await bearer(request)
        if given is None or not hmac.compare_digest(given.credentials.encode(), self._token.encode()):
            raise HTTPException(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise HTTPException(403, "orders of pages of another origin are refused")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "orders are application/json")


class Gate:
    """What every request passes first: the host it asks for, the size of its body, and headers of the answer.

    Args:
        app: The application behind it.
        names: Hosts that are answered; empty for all.
    """

    def __init__(self, app: Any, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SAFE_HEADERS]
            await send(message)

        received = 0

        async def limited() -> MutableMapping[str, Any]:
            nonlocal received
            message: MutableMapping[str, Any] = await receive()
            received += len(message.get("body", b""))
            if received > LONGEST_BODY:
                raise HTTPException(413, TOO_LONG)
            return message

        problem = self._problem(headers, scope["path"])
        if problem is not None:
            status, words = problem
            await JSONResponse({"detail": words}, status)(scope, receive, guarded)
            return
        await self._app(scope, limited, guarded)

    def _problem(self, headers: MutableMapping[bytes, bytes], path: str) -> tuple[int, str] | None:
        host = _name_of(headers.get(b"host", b"").decode("latin-1"))
        if self._names and host not in self._names and path not in PROBES:
            return 421, "this host is not answered here; see http.hosts in the daemon's file"
        if b"transfer-encoding" in headers:
            return 411, "bodies need a Content-Length"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > LONGEST_LENGTH or int(length) > LONGEST_BODY:
            return 413, TOO_LONG
        return None


SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def allowed_names(host: str, names: Collection[str]) -> list[str]:
    """Return the hosts that are answered while listening on an address; empty for all."""
    return ["localhost", "127.0.0.1", "::1", host, *names] if is_loopback(host) or names else []


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
