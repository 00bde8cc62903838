"""The dispatcher as a process: its fronts, its control port, what it says, and what signals do to it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.control import Control
from tuner.dispatch.credentials import Credentials
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front import FrontConfig, Fronts
from tuner.dispatch.journal import Journal
from tuner.dispatch.keeper import certificates_of
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.news import unfailing
from tuner.dispatch.tracing import Tracing
from tuner.errors import InvalidInput, StorageError
from tuner.files.renewed import Renewed, Stamp, stamps
from tuner.heap import heap_at_rest
from tuner.scheduling.scheduler import compile_policy
from tuner.web.open_files import raise_limit

__all__ = ["DispatchProcess", "run_dispatch"]

Read = Callable[[], DispatchConfig]
DRAIN = 10.0
"""s that requests in progress get at the end."""
SOON = 3.0
"""s that the compilation of a policy may take before the operator is told why nothing happens."""
LOOK = 2.0
"""s between two looks at files that are renewed while it runs."""
_log = logging.getLogger(__name__)


class DispatchProcess:
    """A dispatcher with everything around it.

    :meth:`serve` runs it in the present event loop until :meth:`stop` is called.

    Args:
        config: Of the dispatcher.
        say: Receives a sentence for the operator.
        log: File of the event log, written at the end; one from before stays where nothing happened.
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
        self._say = unfailing(say)
        self._log = log
        self._journal = Journal() if log is not None else None
        self._ended, self._listens = asyncio.Event(), asyncio.Event()
        self.metrics = Metrics()
        self._tracing = None
        if config.tracing is not None:
            self._tracing = Tracing.over_otlp(config.tracing.endpoint, config.tracing.ratio)
        self.dispatcher = Dispatcher(config, connect, self.metrics, say, self._journal, tracing=self._tracing)
        self._credentials = Credentials(config.listen)
        self._certificates = _certificates(config)
        front = FrontConfig(
            grpc=config.listen.grpc,
            grpc_server=config.listen.grpc_server,
            http=config.listen.http,
            identity=self._credentials.identity,
            token=self._credentials.clients,
            traces=config.tracing is not None,
        )
        grants = self.dispatcher if config.mode == "grants" else None
        self.fronts = Fronts(self.dispatcher, front, grants, self.metrics.refused)
        host = config.listen.control[0] if config.listen.control is not None else ""
        token = self._credentials.operators
        self.control = Control(self.dispatcher, self.metrics, token, host, self.reload)

    def stop(self) -> None:
        """Begin to end."""
        if not self._listens.is_set() and not self._ended.is_set():
            self._say("ending as soon as the dispatcher is prepared; a second signal ends it at once")
        self._ended.set()

    async def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Listen, answer, and drain at the end.

        One that is stopped before it listens does not begin to, unless it is just opening its ports.

        Args:
            started: Called once it listens.

        Raises:
            InvalidInput: An address, a certificate or a token cannot be used.
            StorageError: The event log cannot be written.
        """
        await self._compile(self._config)
        try:
            if not self._ended.is_set():
                await self.dispatcher.start()
            if not self._ended.is_set():
                await self._listen(started)
        finally:
            await self.control.stop()
            await self.dispatcher.close()
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)
            self._save()
        self._say("ended")

    def _save(self) -> None:
        """Write the event log; one without events takes no other's place."""
        if self._journal is None or self._log is None:
            return
        if self._journal.size or not self._log.exists():
            self._journal.save(self._log)
        else:
            self._say(f"there were no events: {self._log} stays as it was")

    async def _listen(self, started: Callable[[], None]) -> None:
        """Listen until the end, and drain."""
        async with self.fronts:
            if self._config.listen.control is not None:
                await self.control.start(self._config.listen.control)
            self._say(self._summary())
            self._listens.set()
            watching = asyncio.create_task(self._watch())
            try:
                with heap_at_rest():
                    started()
                    await self._ended.wait()
            finally:
                watching.cancel()
            self._say("ending: requests in progress are answered first")
            self.dispatcher.stop_taking()
            await self.fronts.drain(DRAIN)

    async def reload(self) -> None:
        """Read the configuration again, and go over to it; every request that was taken is answered.

        One that comes while the dispatcher begins is done once it listens.

        Raises:
            InvalidInput: It has a mistake, or asks for what needs a restart; nothing changes.
            StorageError: It cannot be read; nothing changes.
        """
        await self._listens.wait()
        async with self.dispatcher.changing:
            try:
                config = await asyncio.to_thread(self._read)
                for field in ("listen", "mode", "tracing"):
                    if getattr(config, field) != getattr(self._config, field):
                        problem = "cannot change while it runs"
                        raise InvalidInput(field, problem, "start another dispatcher, or change it back")
                await self._compile(config)
                await self._renew(self._credentials.read)
                certificates = _certificates(config)
                await self.dispatcher.reload(config)
            except (InvalidInput, StorageError) as error:
                self._say(f"the file was not reloaded, everything stays as it was: {error}")
                raise
            self._config, self._certificates = config, certificates
        self._say(self._summary())

    async def _compile(self, config: DispatchConfig) -> None:
        """Compile the policy in another thread: signals are heard, and requests answered, meanwhile."""
        rules = config.rules()
        compiling = asyncio.create_task(asyncio.to_thread(compile_policy, rules.policy, rules.chosen))
        await asyncio.wait([compiling], timeout=SOON)
        if not compiling.done():
            self._say(f"preparing {rules.policy}: it is compiled once, which takes up to a minute")
        await compiling

    async def _watch(self) -> None:
        """Renew what is listened with, and the connections to backends, once their files have changed."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                async with self.dispatcher.changing:
                    await self._renew(self._credentials.look)
                    if await asyncio.to_thread(self._certificates.look):
                        await self._renew_backends()
            except StorageError as error:
                self._say(str(error))
            except Exception:  # the last net: the next renewal is seen all the same
                _log.exception("credentials were not renewed")

    async def _renew(self, find: Callable[[], list[str]]) -> None:
        """Use the credentials that are there, after ``find`` has read what is new and returned what to say.

        Raises:
            InvalidInput: A token cannot be used.
            StorageError: A certificate cannot.
        """
        sentences = await asyncio.to_thread(find)
        try:
            self.control.token = self._credentials.operators
            self.fronts.renew(self._credentials.clients, self._credentials.identity)
        finally:
            for sentence in sentences:
                self._say(sentence)

    async def _renew_backends(self) -> None:
        """Open new connections to the backends whose certificates have changed."""
        try:
            await self.dispatcher.renew()
        except (InvalidInput, StorageError) as error:
            self._say(f"certificates for backends were not renewed, the connections stay: {error}")
        else:
            self._say("certificates for backends were renewed")

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


def _certificates(config: DispatchConfig) -> Renewed[tuple[Stamp, ...]]:
    """Return the state of the files that the connections to backends were opened with."""
    files = certificates_of(config.sessions)
    return Renewed(partial(stamps, files), files)


def _place(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run_dispatch(read: Read, say: Callable[[str], None], log: Path | None = None) -> None:
    """Run a dispatcher until Ctrl-C or SIGTERM; a second one ends it at once.

    SIGHUP reads the configuration again.

    Args:
        read: Reads the configuration, at first and then again.
        say: Receives a sentence for the operator.
        log: File of the event log, written at the end.

    Raises:
        InvalidInput: The configuration has a mistake, or an address, a certificate or a token cannot be used.
        StorageError: The configuration cannot be read, or the event log not be written.
    """
    raise_limit()
    early: list[int] = []  # signals that came while the configuration was read
    signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
    config = read()

    async def main() -> None:
        process = DispatchProcess(config, say, log, read)
        signals = _Signals(process)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, signals.end)
        loop.add_signal_handler(signal.SIGHUP, signals.reload)
        if early:
            signals.reload()
        await process.serve()

    # Not by uvloop, which is quicker: its clock, by which batches are timed, counts whole milliseconds.
    asyncio.run(main())


class _Signals:
    """What signals do to a dispatcher; made in its event loop."""

    def __init__(self, process: DispatchProcess) -> None:
        self._process = process
        self._ending = False
        self._reloads: set[asyncio.Task[None]] = set()

    def end(self) -> None:
        """Begin to end; the second time, end at once."""
        if self._ending:
            os._exit(130)
        self._ending = True
        self._process.stop()

    def reload(self) -> None:
        """Begin to read the configuration again."""
        task = asyncio.create_task(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        with suppress(InvalidInput, StorageError):  # the process has said it
            await self._process.reload()
