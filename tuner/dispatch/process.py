"""The dispatcher as a process: its fronts, its control port, what it says, and what signals do to it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.config import DispatchConfig, ListenSection
from tuner.dispatch.control import Control
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front import FrontConfig, Fronts
from tuner.dispatch.journal import Journal
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.tracing import Tracing
from tuner.errors import InvalidInput, StorageError
from tuner.heap import heap_at_rest
from tuner.scheduling.scheduler import compile_policy
from tuner.web.token import read_token

__all__ = ["DispatchProcess", "run_dispatch"]

Read = Callable[[], DispatchConfig]
DRAIN = 10.0
"""s that requests in progress get at the end."""


class DispatchProcess:
    """A dispatcher with everything around it.

    :meth:`serve` runs it in the present event loop until :meth:`stop` is called.

    Args:
        config: Of the dispatcher.
        say: Receives a sentence for the operator.
        log: File of the event log, written at the end.
        read: Reads the configuration again; without it, it is never read again.
    """

    def __init__(
        self,
        config: DispatchConfig,
        say: Callable[[str], None],
        log: Path | None = None,
        read: Read | None = None,
    ) -> None:
        self._config = config
        self._read = read or (lambda: config)
        self._say = say
        self._log = log
        self._journal = Journal() if log is not None else None
        self._ended = asyncio.Event()
        self.metrics = Metrics()
        self._tracing = None
        if config.tracing is not None:
            self._tracing = Tracing.over_otlp(config.tracing.endpoint, config.tracing.ratio)
        self.dispatcher = Dispatcher(config, connect, self.metrics, say, self._journal, tracing=self._tracing)
        front = front_config(config.listen, traces=config.tracing is not None)
        grants = self.dispatcher if config.mode == "grants" else None
        self.fronts = Fronts(self.dispatcher, front, grants, self.metrics.refused)
        host = config.listen.control[0] if config.listen.control is not None else ""
        token = _control_token(config.listen)
        self.control = Control(self.dispatcher, self.metrics, token, host, self.reload)

    def stop(self) -> None:
        """Begin to end."""
        self._ended.set()

    async def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Listen, answer, and drain at the end.

        Args:
            started: Called once it listens.

        Raises:
            InvalidInput: An address, a certificate or a token cannot be used.
            StorageError: The event log cannot be written.
        """
        rules = self._config.rules()
        await asyncio.to_thread(compile_policy, rules.policy, rules.chosen)  # signals are heard meanwhile
        try:
            await self.dispatcher.start()
            async with self.fronts:
                if self._config.listen.control is not None:
                    await self.control.start(self._config.listen.control)
                self._say(self._summary())
                with heap_at_rest():
                    started()
                    await self._ended.wait()
                self._say("ending: requests in progress are answered first")
                await self.fronts.drain(DRAIN)
        finally:
            await self.control.stop()
            await self.dispatcher.close()
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)
            if self._journal is not None and self._log is not None:
                self._journal.save(self._log)
        self._say("ended")

    async def reload(self) -> None:
        """Read the configuration again, and go over to it; every request that was taken is answered.

        Raises:
            InvalidInput: It has a mistake, or asks for what needs a restart; nothing changes.
            StorageError: It cannot be read; nothing changes.
        """
        async with self.dispatcher.changing:
            try:
                config = await asyncio.to_thread(self._read)
                for field in ("listen", "mode", "tracing"):
                    if getattr(config, field) != getattr(self._config, field):
                        problem = "cannot change while it runs"
                        raise InvalidInput(field, problem, "start another dispatcher, or change it back")
                rules = config.rules()
                await asyncio.to_thread(compile_policy, rules.policy, rules.chosen)
                await self.dispatcher.reload(config)
            except (InvalidInput, StorageError) as error:
                self._say(f"the file was not reloaded, everything stays as it was: {error}")
                raise
            self._config = config
        self._say(self._summary())

    def _summary(self) -> str:
        names = ", ".join(self.dispatcher.sessions)
        places = [
            f"{kind} at {_place(address)}"
            for kind, address in (("gRPC", self.fronts.grpc_address), ("HTTP", self.fronts.http_address))
            if address is not None
        ]
        if self._config.listen.control is not None:
            places.append(f"control at {_place(self.control.address)}")
        servers = [server for pool in self.dispatcher.pools for server in pool.servers]
        up = sum(server.up for server in servers)
        away = "".join(f"; {server.reason}" for server in servers if not server.up)
        return (
            f"dispatches {names} by {self._config.policy}, {', '.join(places)}, "
            f"to {up} of {len(servers)} backends{away}"
        )


def front_config(listen: ListenSection, *, traces: bool = False) -> FrontConfig:
    """Return where the fronts listen, and whether they read which traces their callers name.

    Raises:
        InvalidInput: The token cannot be used.
    """
    return FrontConfig(
        grpc=listen.grpc,
        http=listen.http,
        certificate=listen.certificate,
        key=listen.key,
        client_ca=listen.client_ca,
        token=_client_token(listen),
        traces=traces,
    )


def _control_token(listen: ListenSection) -> str | None:
    """Return the token that changes on the control port need; None if nothing can be changed there.

    Raises:
        InvalidInput: The token cannot be used.
    """
    if listen.control_token_file is not None:
        return read_token(listen.control_token_file, None, "listen.control_token_file")
    return _client_token(listen)


def _client_token(listen: ListenSection) -> str | None:
    """Return the token that every client must send; None if they need none."""
    if listen.token_file is None:
        return None
    return read_token(listen.token_file, None, "listen.token_file")


def _place(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run_dispatch(
    config: DispatchConfig, say: Callable[[str], None], log: Path | None = None, read: Read | None = None
) -> None:
    """Run a dispatcher until Ctrl-C or SIGTERM; a second one ends it at once.

    SIGHUP reads the configuration again.

    Args:
        config: Of the dispatcher.
        say: Receives a sentence for the operator.
        log: File of the event log, written at the end.
        read: Reads the configuration again.

    Raises:
        InvalidInput: An address, a certificate or a token cannot be used.
        StorageError: The event log cannot be written.
    """

    async def main() -> None:
        process = DispatchProcess(config, say, log, read)
        loop = asyncio.get_running_loop()
        came: list[int] = []

        def ending() -> None:
            came.append(1)
            if len(came) > 1:
                os._exit(130)
            process.stop()

        async def reload() -> None:
            with suppress(InvalidInput, StorageError):  # the process has said it
                await process.reload()

        def reloading() -> None:
            task = loop.create_task(reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        reloads: set[asyncio.Task[None]] = set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ending)
        loop.add_signal_handler(signal.SIGHUP, reloading)
        await process.serve()

    # Not by uvloop, which is quicker: its clock, by which batches are timed, counts whole milliseconds.
    asyncio.run(main())
