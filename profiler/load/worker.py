"""The process that sends load: ``python -m tuner.profiler.load.worker``, driven over stdin (see ``wire.py``).

It is open loop: a request leaves at its intended time whether or not earlier ones were answered, and its
latency counts from that time; with a limit on the requests in flight others wait here, and their latency
counts this, too. One timer waits for the next request; a coroutine for each gap would cost more.

It cancels no request and sends no gRPC deadline: Triton 24.08 to 24.11, which the embedded server is one of,
can crash when a cancellation races with the answer (triton-inference-server/server: issue 7368, fixed by 7840
in 24.12; issue 8034 is a further race). An overdue request counts as lost here, and its call stays open.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, cast

import grpc
import numpy as np

from tuner.adapters.connection.address import host_of
from tuner.adapters.connection.channel import LIVELY, direct
from tuner.adapters.connection.endpoint import Endpoint, Wire
from tuner.adapters.connection.request import FilledInput, filled_inputs
from tuner.adapters.connection.security import parse_security
from tuner.errors import InvalidInput, StorageError
from tuner.files.renewed import Renewed
from tuner.profiler.load.timetable import Timetable
from tuner.profiler.load.wire import (
    CANCELLED,
    DONE,
    LOST,
    NOT_SENT,
    OK,
    PACK,
    SENT,
    TICK,
    Setup,
    read_endpoint,
)
from tuner.workload.notation import parse_arrival

__all__ = ["LoadWorker", "main"]

LOOK = 2.0
"""s between two looks at certificates that may be renewed."""
FLUSH = 0.05
"""How often results are reported, s."""
BURST = 16
"""Requests sent in one turn of the event loop when behind, before answers get their turn."""
MOST_OPEN = 20_000
"""Calls that may be open; a server that hangs must not fill our memory."""
LONGEST_COMMAND = 1 << 24
"""Bytes: it may name many replicas, each with its files."""
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # else equal channels share one connection
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a restarted server is found again within a second
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    *LIVELY,
]
TRIES, TRIAL = 3, 2.0
"""How often a request that is refused is tried at first, and how long its answer is waited for, s."""
OBJECTIONS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INTERNAL,
    }
)
"""How a server refuses what it would refuse again."""
UNKNOWN = grpc.StatusCode.UNKNOWN.value[0]


class LoadWorker:
    """Sends requests from `start` to `stop`, and reports them through a pipe.

    Args:
        channels: The replicas, used in turn, each with a channel of ``grpc.aio`` to it.
        method: Path of the gRPC method that infers.
        encode: Returns the serialised request for a replica.
        timetable: When to send.
        timeout: When an answer is given up, s after the intended time.
        pipe: Where records go.
    """

    def __init__(
        self,
        channels: Sequence[tuple[Endpoint, Any]],
        method: str,
        encode: Callable[[Endpoint], bytes],
        timetable: Timetable,
        *,
        timeout: float,
        pipe: asyncio.WriteTransport,
    ) -> None:
        self._method = method
        self._encode = encode
        self._use(channels)
        self._timetable = timetable
        self._timeout = timeout
        self._in_flight = 0  # most requests without an answer; 0: however many
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._records = bytearray()
        self._sent = 0
        self._open: set[asyncio.Task[None]] = set()
        self._closings: set[asyncio.Task[None]] = set()  # of channels that are no longer used
        self._held: deque[int] = deque()  # requests that are due, but that too many are in flight for
        self._awaited: set[int] = set()  # requests sent, neither answered nor given up
        self._waiting: dict[int, float] = {}  # number -> intended time, in order, of what is not given up
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send from now on."""
        self._send_due()
        self._flush()

    def command(self, words: Mapping[str, Any]) -> None:
        """Carry out one command."""
        if "in_flight" in words:
            self._in_flight = words["in_flight"]
            self._send_held()
        else:
            self._timetable.replace(parse_arrival(words["arrival"]), time.monotonic())
            self._send_due()

    def move(self, channels: Sequence[tuple[Endpoint, Any]]) -> None:
        """Send over other channels from now on. What was sent over the old ones is still answered there."""
        closing = self._loop.create_task(_close(self._channels, set(self._open), self._timeout))
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
        self._use(channels)

    def _use(self, channels: Sequence[tuple[Endpoint, Any]]) -> None:
        self._channels = [channel for _, channel in channels]
        self._calls = itertools.cycle(
            [partial(channel.unary_unary(self._method), self._encode(one)) for one, channel in channels]
        )

    async def stop(self, drain: float) -> None:
        """Stop sending, wait at most ``drain`` seconds for outstanding answers, and cancel the rest."""
        if self._timer is not None:
            self._timer.cancel()
        end = time.monotonic() + drain
        while self._open and (left := end - time.monotonic()) > 0:
            await asyncio.wait(self._open, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        self._report()
        for number in list(self._waiting):
            self._end(number, CANCELLED)
        self._report()

    def _send_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for _ in range(BURST):
            if self._timetable.next > time.monotonic():
                break
            self._send(self._timetable.next)
            self._timetable.advance()
        if self._timetable.next < float("inf"):
            self._timer = self._loop.call_at(self._timetable.next, self._send_due)

    def _send(self, intended: float) -> None:
        number, now = self._sent, time.monotonic()
        self._sent += 1
        self._records += PACK.pack(SENT, 0, number, intended, now)
        self._waiting[number] = intended
        if len(self._open) + len(self._held) >= MOST_OPEN:
            self._end(number, NOT_SENT)
            return
        self._held.append(number)
        self._send_held()

    def _send_held(self) -> None:
        """Send what is due, as far as more may be in flight."""
        while self._held and (not self._in_flight or len(self._awaited) < self._in_flight):
            number = self._held.popleft()
            if number in self._waiting:  # it was not given up
                self._awaited.add(number)
                task = self._loop.create_task(self._await(number, next(self._calls)()))
                self._open.add(task)
                task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._send_held()

    async def _await(self, number: int, call: Any) -> None:
        try:
            await call
            status = OK
        except grpc.aio.AioRpcError as error:
            status = error.code().value[0]
        except Exception:  # one request's failure, whatever it is, must not go unreported
            status = UNKNOWN
        self._end(number, status)

    def _end(self, number: int, status: int) -> None:
        """Report the end of a request, unless it was reported before."""
        self._awaited.discard(number)
        if self._waiting.pop(number, None) is not None:
            self._records += PACK.pack(DONE, status, number, 0.0, time.monotonic())

    def _give_up(self) -> None:
        """Report overdue requests as lost."""
        overdue = time.monotonic() - self._timeout
        late = itertools.takewhile(lambda item: item[1] < overdue, self._waiting.items())
        for number, _ in list(late):
            self._end(number, LOST)

    def _flush(self) -> None:
        self._report()
        self._send_held()  # in the place of those that were given up
        self._loop.call_later(FLUSH, self._flush)

    def _report(self) -> None:
        self._give_up()
        reported = min(self._timetable.next, time.monotonic())
        self._records += PACK.pack(TICK, 0, 0, reported, 0.0)
        self._pipe.write(bytes(self._records))
        self._records.clear()


class Way:
    """How the replicas are reached: where they are by now, and each by which certificates.

    Life: `open` channels; again whenever `changed` says so. Whoever is told that they have moved sets
    `endpoint`, and calls `look` from time to time.

    Raises:
        InvalidInput: Certificates cannot be used.
        StorageError: They cannot be read.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._credentials: dict[frozenset[tuple[str, str]], Renewed[Any]] = {}  # by options
        self._opened = [(one, self._credentials_of(one)) for one in endpoint.replicas]

    def open(self) -> list[tuple[Endpoint, Any]]:
        """Return the replicas, each with a channel to it."""
        self._opened = self._usable()
        return [(one, _channel(one.address, credentials)) for one, credentials in self._opened]

    def look(self) -> None:
        """Look whether certificates were renewed."""
        for credentials in self._credentials.values():
            with suppress(InvalidInput, StorageError):  # our parent says what is wrong with them
                credentials.look()

    @property
    def changed(self) -> bool:
        """Whether new channels would lead elsewhere than those that were opened, or by other certificates."""
        usable = self._usable()
        return bool(usable) and usable != self._opened

    def _usable(self) -> list[tuple[Endpoint, Any]]:
        """Return the replicas with their credentials, but for those whose files cannot be used so far."""
        found = []
        for one in self.endpoint.replicas:
            with suppress(InvalidInput, StorageError):
                found.append((one, self._credentials_of(one)))
        return found

    def _credentials_of(self, endpoint: Endpoint) -> Any:
        """Return the credentials of a replica, None in the clear."""
        options = frozenset(endpoint.security.items())
        if options not in self._credentials:
            security = parse_security(endpoint.security)
            self._credentials[options] = Renewed(security.channel_credentials, security.certificates)
        return self._credentials[options].value


def _channel(address: str, credentials: Any) -> Any:
    options = [*OPTIONS, *direct(host_of(address))]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


async def _close(channels: list[Any], calls: set[asyncio.Task[None]], timeout: float) -> None:
    """Close channels when their calls have ended, or are given up: earlier, it would cancel them."""
    if calls:
        await asyncio.wait(calls, timeout=timeout)
    for channel in channels:
        await channel.close()


async def _inputs(channel: Any, wire: Wire, setup: Setup) -> list[FilledInput]:
    """Ask the server for the model's inputs, and make up a row of data for them."""
    await asyncio.wait_for(channel.channel_ready(), setup.patience)
    generator = np.random.default_rng(setup.seed)
    inputs = await wire.read_inputs(channel, setup.endpoint, setup.patience)
    return list(filled_inputs(inputs, setup.shapes, generator))


def _encoder(wire: Wire, inputs: Sequence[FilledInput]) -> Callable[[Endpoint], bytes]:
    """Return what makes the request for a replica; those that want the same share it."""
    made: dict[frozenset[tuple[str, str]], bytes] = {}  # by options

    def encode(endpoint: Endpoint) -> bytes:
        options = frozenset(endpoint.options.items())
        if options not in made:
            made[options] = wire.encode(endpoint, inputs)
        return made[options]

    return encode


async def _objection(channel: Any, method: str, raw: bytes) -> str:
    """Send the request, and again where it is refused; return why it is refused each time, else nothing.

    A late answer is no objection, nor is a server that is away: the request itself may be in order.
    """
    words = ""
    for _ in range(TRIES):
        call = channel.unary_unary(method)(raw)
        await asyncio.wait({asyncio.ensure_future(_ended(call))}, timeout=TRIAL)
        if not call.done() or await call.code() not in OBJECTIONS:
            return ""
        words = await call.details() or (await call.code()).name
    return words


async def _ended(call: Any) -> None:
    with suppress(grpc.RpcError):
        await call


async def _prepare(setup: Setup, wire: Wire, channel: Any) -> tuple[list[FilledInput], dict[str, str]]:
    """Return the data of requests, and the error for the parent if none can be sent."""
    try:
        inputs = await _inputs(channel, wire, setup)
        objection = await _objection(channel, wire.METHOD, wire.encode(setup.endpoint, inputs))
        return inputs, {"error": "refused", "message": objection} if objection else {}
    except InvalidInput as error:
        return [], {"error": "invalid", "message": str(error)}
    except TimeoutError:
        return [], {"error": "unreachable", "message": f"no answer within {setup.patience:g} s"}
    except grpc.aio.AioRpcError as error:
        missing = error.code() is grpc.StatusCode.NOT_FOUND or "unknown model" in (error.details() or "")
        return [], {"error": "unknown_model" if missing else "unreachable", "message": error.details() or ""}


async def _serve(output: int) -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(LONGEST_COMMAND)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    pipe, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(output, "wb"))
    setup = Setup.from_line(await commands.readline())
    wire = cast(Wire, import_module(setup.endpoint.wire))
    way = Way(setup.endpoint)
    channels = way.open()
    inputs, problem = await _prepare(setup, wire, channels[0][1])
    pipe.write(json.dumps(problem).encode() + b"\n")
    if not problem:
        generator = np.random.default_rng([setup.seed, 1])
        timetable = Timetable(parse_arrival(setup.arrival), generator, time.monotonic())
        encode = _encoder(wire, inputs)
        worker = LoadWorker(channels, wire.METHOD, encode, timetable, timeout=setup.timeout, pipe=pipe)
        await _obey(worker, way, commands, setup.timeout)
    pipe.close()


async def _obey(
    worker: LoadWorker,
    way: Way,
    commands: asyncio.StreamReader,
    timeout: float,
) -> None:
    worker.start()
    renewing = asyncio.create_task(_renew(worker, way))
    while line := await commands.readline():
        words = json.loads(line)
        if "stop" in words:
            renewing.cancel()
            await worker.stop(float(words["stop"]))
            return
        if "endpoint" in words:
            way.endpoint = read_endpoint(words["endpoint"])
            _follow(worker, way)
        else:
            worker.command(words)
    renewing.cancel()
    await worker.stop(timeout)  # the parent is gone: send nothing more, but cancel nothing either


async def _renew(worker: LoadWorker, way: Way) -> None:
    """Send over other channels once certificates have changed, or can be used at all."""
    while True:
        await asyncio.sleep(LOOK)
        way.look()
        _follow(worker, way)


def _follow(worker: LoadWorker, way: Way) -> None:
    """Send over other channels if the way has changed."""
    if way.changed:
        worker.move(way.open())


def main() -> None:
    """Run until a line says to stop, or until stdin ends because the parent is gone."""
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody else's print may land among the records
    gc.freeze()
    gc.set_threshold(50_000)
    # epoll and poll round timers up to milliseconds; select sends within 0.2 ms
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_serve(output))


if __name__ == "__main__":
    main()
