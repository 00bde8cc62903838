"""The daemon's web server. It has a thread and a store connection of its own, so that it delays no target."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable
from importlib.resources import files
from types import TracebackType
from typing import Self

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse

from tuner import __version__
from tuner.control.daemon.config import HttpSection
from tuner.control.daemon.daemon import Daemon
from tuner.control.daemon.phase import AbsentTarget
from tuner.control.daemon.report import WorkerReport
from tuner.control.store.order_book import all_orders
from tuner.control.store.store import Store
from tuner.control.web.access import Access, Gate, allowed_names
from tuner.control.web.api import Api
from tuner.control.web.exporter import Exporter
from tuner.control.web.views import Health
from tuner.errors import InvalidInput, StorageError
from tuner.files.renewed import STAYS, Renewed
from tuner.web.connection import ACCEPTED_AT_ONCE, Connection
from tuner.web.listener import bound
from tuner.web.metrics import PROMETHEUS
from tuner.web.seldom import log_seldom

__all__ = ["WebServer"]

HANGS = 180.0
"""Silence of the daemon, s, that ``/healthz`` reports as a problem; a reload may wait 120 s for targets."""


class WebServer:
    """Shows one daemon; a context manager that listens while it is entered. May be entered again.

    Args:
        daemon: The daemon that it shows.
        config: Where it listens.
        token: The token that orders need, as its file holds it; None refuses all orders.
        say: Receives a sentence when it listens, and when the token was renewed, or cannot be used.

    Raises:
        InvalidInput: On entering, the address cannot be used.
    """

    def __init__(
        self, daemon: Daemon, config: HttpSection, token: Renewed[str | None], say: Callable[[str], None]
    ) -> None:
        self.exporter = Exporter()
        self.address: str | None = None
        self._daemon = daemon
        self._config = config
        self._token = token
        self._access = Access(token.value)
        self._say = say
        self._port = 0
        self._store: Store | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        host, port = self._config.listen
        port = self._port or port  # the same port when it is entered again, also if the file asks for any
        listening = bound((host, port), "http.listen")
        log_seldom()
        self._store = Store(self._daemon.config.state, existing=True)
        self._port = port = listening.getsockname()[1]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        gate = Gate(self.application(), allowed_names(host, self._config.hosts))
        settings = uvicorn.Config(
            gate,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            http=Connection,
            ws="none",
            backlog=ACCEPTED_AT_ONCE,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), name="web", daemon=True)
        self._thread.start()
        closed = "; orders are refused, because there is no token" if self._access.closed else ""
        self._say(f"listens at {self.address}{closed}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        assert self._store is not None
        self._server.should_exit = True
        self._thread.join(10)
        self._store.close()

    def report(self, name: str, report: WorkerReport) -> None:
        """Count one turn of a target, for Prometheus."""
        self.exporter.report(name, report)

    def look(self) -> None:
        """Let orders need the token that its file holds by now; one that cannot be used changes nothing."""
        try:
            if self._token.look():
                self._access.token = self._token.value
                self._say("http.token_file was renewed")
        except (InvalidInput, StorageError) as error:
            self._say(f"{error}; {STAYS}")

    def application(self) -> FastAPI:
        """Return the web application: the API, metrics, health and the page."""
        app = FastAPI(
            title="servetune",
            version=__version__,
            description="The targets of the daemon, what it decided and why. Orders need a token.",
            docs_url=None,  # these pages load scripts from other hosts
            redoc_url=None,
        )
        app.include_router(Api(self._daemon, self._opened, self._access, self.exporter).router)
        app.add_api_route("/healthz", self.healthy, response_model=Health, operation_id="healthz")
        app.add_api_route("/readyz", self.ready, response_model=Health, operation_id="readyz")
        app.add_api_route("/metrics", self.metrics, include_in_schema=False)
        app.add_api_route("/", _page, include_in_schema=False)
        app.add_exception_handler(StorageError, _storage_failed)
        app.add_exception_handler(RequestValidationError, _misunderstood)
        return app

    # Probes are answered by the loop that serves connections: all threads may be busy with other requests.

    async def healthy(self, response: Response) -> Health:
        """Report whether the daemon itself works. Targets that are away are not its fault."""
        silence = self._daemon.silence
        problems = [f"the daemon has been silent for {silence:.0f} s"] if silence > HANGS else []
        response.status_code = 503 if problems else 200
        return Health(ok=not problems, problems=problems)

    async def ready(self, response: Response) -> Health:
        """Report whether the daemon has tried to attach to every target."""
        wanted = {target.name for target in self._daemon.config.targets}
        problems = [
            f"{name} is {target.phase}"
            for name, target in self._daemon.shown.items()
            if target.phase == "starting" or (name in wanted and isinstance(target, AbsentTarget))
        ]
        response.status_code = 503 if problems else 200
        return Health(ok=not problems, problems=problems)

    def metrics(self) -> Response:
        """Return all metrics in the text format of Prometheus."""
        page = self.exporter.page(self._daemon.shown, all_orders(self._opened()))
        return Response(page, media_type=PROMETHEUS)

    def _opened(self) -> Store:
        assert self._store is not None, "requests come only while it is entered"
        return self._store


def _page() -> HTMLResponse:
    """Return the live page, with a policy that lets only its own script and style run."""
    html = files("tuner.control.web").joinpath("page.html").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; script-src {_hash(html, 'script')}; style-src {_hash(html, 'style')}"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _hash(html: str, element: str) -> str:
    """Return the hash of an element's text, as a content security policy names it."""
    found = re.search(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
    assert found is not None, f"the page has no {element}"
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _storage_failed(_: Request, error: Exception) -> JSONResponse:
    """Answer 503: the store cannot be read or written, for instance on a full disk."""
    return JSONResponse({"detail": str(error)}, 503)


def _misunderstood(_: Request, error: Exception) -> JSONResponse:
    """Answer 422 without the input, which JSON may be unable to hold: lone surrogates, infinite numbers."""
    assert isinstance(error, RequestValidationError)
    problems = [
        {"loc": [_encodable(part) for part in one["loc"]], "msg": _encodable(one["msg"]), "type": one["type"]}
        for one in error.errors()
    ]
    return JSONResponse({"detail": problems}, 422)


def _encodable(part: str | int) -> str | int:
    """Return a part of an error with the characters replaced that UTF-8 cannot hold."""
    return part.encode(errors="replace").decode() if isinstance(part, str) else part
