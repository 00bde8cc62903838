"""Access over HTTP: everybody who reaches the address may read, orders need a token.

=======================  ===================================================================================
threat                   what is done about it
=======================  ===================================================================================
orders from strangers    orders need ``Authorization: Bearer TOKEN``, compared in constant time; without a
                         token in the daemon's file or environment all orders are refused
forged requests from     there are no cookies, so a browser adds no credentials by itself; orders must be
other web pages (CSRF)   ``application/json``, an ``Origin`` must be our own, and no CORS header is ever sent
DNS rebinding            on a loopback address, only its own host names are answered; elsewhere those under
                         ``hosts``, if there are any
floods of requests       bodies are short, and read only if the token is right; connections are few, and the
                         stalest one is aborted for a new one; requests in progress are few, and few of them
                         are worked on at a time; answers are limited in length; what the libraries of the
                         server log of strangers is limited, too. Probes wait for none of it
scripts in texts (XSS)   the page builds text nodes only, and its policy allows no script but its own
=======================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from anyio.to_thread import current_default_thread_limiter
from fastapi import HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from tuner.adapters.connection.credentials import is_loopback
from tuner.web.token import same_token

__all__ = ["Access", "Gate", "bearer"]

LONGEST_BODY = 16_384
"""Bytes in the body of a request."""
LONGEST_LENGTH = 20
"""Digits of a Content-Length: Python takes long to read a number of a million digits."""
MOST_REQUESTS = 128
"""Requests in progress; those of aborted connections are among them until their answer is made."""
THREADS = 4
"""Requests that are worked on at the same time. They share one connection to the store anyhow."""
TOO_LONG = f"a body has at most {LONGEST_BODY} bytes"
PROBES = ("/healthz", "/readyz")
"""Answered under any host name: orchestrators ask by address, and the answers hold no secret."""
bearer = HTTPBearer(auto_error=False, description="The token of the daemon's file or environment.")


class Access:
    """Decides whether a request may give orders.

    Args:
        token: The token that orders need; None refuses all orders.
    """

    def __init__(self, token: str | None) -> None:
        self.token = token
        """May be set anew."""

    @property
    def closed(self) -> bool:
        """Whether all orders are refused."""
        return self.token is None

    @property
    def route(self) -> type[APIRoute]:
        """A class of routes that check a request before they read its body."""
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
        """Refuse a request that must not give orders.

        Raises:
            HTTPException: 400, 401, 403 or 415, with the reason.
        """
        if self.token is None:
            raise HTTPException(403, "no token is set: give http.token_file or SERVETUNE_TOKEN")
        given = await bearer(request)
        if given is None or not same_token(given.credentials, self.token):
            raise HTTPException(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        origin = request.headers.get("origin")
        if origin is not None and _place_of(origin) != request.headers.get("host"):
            raise HTTPException(403, "orders from pages of another origin are refused")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "an order must be application/json")


class Gate:
    """Checks the host name and the length of every request, and adds headers to every answer (ASGI).

    Too many requests at the same time are refused, probes excepted.

    Args:
        app: The application that answers what passes.
        names: Host names that are answered; empty for all.
    """

    def __init__(self, app: Any, names: Collection[str] = ()) -> None:
        self._app = app
        self._open = 0  # requests in progress
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
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
        if scope["path"] in PROBES:
            await self._app(scope, limited, guarded)
            return
        current_default_thread_limiter().total_tokens = THREADS  # it belongs to the loop, so it is set here
        self._open += 1
        try:
            await self._app(scope, limited, guarded)
        finally:
            self._open -= 1

    def _problem(self, headers: MutableMapping[bytes, bytes], path: str) -> tuple[int, str] | None:
        host = _name_of(headers.get(b"host", b"").decode("latin-1"))
        if self._names and host not in self._names and path not in PROBES:
            return 421, "this host is not answered here; see http.hosts in the daemon's file"
        if b"transfer-encoding" in headers:
            return 411, "bodies need a Content-Length"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > LONGEST_LENGTH or int(length) > LONGEST_BODY:
            return 413, TOO_LONG
        if self._open >= MOST_REQUESTS and path not in PROBES:
            return 503, f"{MOST_REQUESTS} requests are in progress; ask again later"
        return None


SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def allowed_names(host: str, names: Collection[str]) -> list[str]:
    """Return the host names that are answered on an address; empty for all."""
    return ["localhost", "127.0.0.1", "::1", host, *names] if is_loopback(host) or names else []


def _place_of(origin: str) -> str:
    """Return the host and port of an Origin header.

    Raises:
        HTTPException: It is malformed.
    """
    try:
        return urlsplit(origin).netloc
    except ValueError:
        raise HTTPException(400, "the Origin is malformed") from None


def _name_of(host: str) -> str:
    """Return the name in a Host header without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
