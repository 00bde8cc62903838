"""All fronts of one dispatcher, on one event loop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from tuner.adapters.connection.identity import Identity
from tuner.dispatch.front.access import Access
from tuner.dispatch.front.config import Address, FrontConfig
from tuner.dispatch.front.grpc_server import start_grpc
from tuner.dispatch.front.http_server import start_http
from tuner.dispatch.front.intake import Count, Intake
from tuner.dispatch.grant import Grants
from tuner.dispatch.request import Service
from tuner.web.listener import Listener

__all__ = ["Fronts"]

LAST_WRITES = 3.0
"""s that clients get at the end to read the answers that were given."""


class Fronts:
    """Start listening, drain, stop; an asynchronous context manager that does the first and the last.

    Args:
        service: Answers the requests.
        config: Where to listen, and what to take.
        grants: Grants the requests of frontends that keep their inputs; nobody does if None.
        count: Hears of requests that the service does not get, because too much is in progress or they are
            too late.
    """

    def __init__(
        self,
        service: Service,
        config: FrontConfig,
        grants: Grants | None = None,
        count: Count = lambda *_: None,
    ) -> None:
        self.grpc_address: Address | None = None
        """Where gRPC is spoken, with the port that was found."""
        self.http_address: Address | None = None
        """Where HTTP is spoken, likewise."""
        self._config = config
        self._access = Access(config.token, config.identity)
        self._intake = Intake(
            service, config.most_requests, grants, config.traces, count, largest=config.largest_message
        )
        self._grpc: Any = None
        self._http: Listener | None = None
        # Conversations about grants have no end to wait for.
        self._ends_by_itself = grants is None
        self._drained = False

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidInput: An address cannot be used.
        """
        config, access = self._config, self._access
        try:
            if config.grpc is not None:
                self._grpc, self.grpc_address = await start_grpc(self._intake, config, config.grpc, access)
            if config.http is not None:
                self._http = await start_http(self._intake, config, config.http, access)
                self.http_address = self._http.address
        except BaseException:
            await self.stop()
            raise

    def renew(self, token: str | None, identity: Identity | None) -> None:
        """Let requests that come from now on need this token, and answer new connections by this certificate.

        Open connections stay. Whether there is TLS, and whether clients are certified, does not change.

        Raises:
            StorageError: There are too many open files; new connections go on as before.
        """
        self._access.token = token
        if identity is None or identity is self._access.identity:
            return
        if self._http is not None:
            self._http.tls = identity.server_context()
        self._access.identity = identity

    async def drain(self, longest: float) -> bool:
        """Refuse new requests, and wait for those in progress; return whether all were answered.

        Clients that ask whether the dispatcher is ready hear that it is not.

        Args:
            longest: How long to wait, s.
        """
        self._drained = True
        try:
            async with asyncio.timeout(longest):
                await self._intake.drain()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End every connection; the requests in progress are withdrawn.

        After :meth:`drain` the answers are written first, for some seconds.
        """
        http, server, self._http, self._grpc = self._http, self._grpc, None, None
        wait = LAST_WRITES if self._drained else 0.0
        grace = wait if self._ends_by_itself else 0.0
        await asyncio.gather(
            *([http.stop(wait)] if http is not None else []),
            *([server.stop(grace or None)] if server is not None else []),
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
