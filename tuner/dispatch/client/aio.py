"""Asks for grants from an event loop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import operator
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from types import TracebackType
from typing import Any, Self

import grpc

from tuner.adapters.connection.address import host_of
from tuner.adapters.connection.channel import data_options
from tuner.dispatch.backends.channel import failure, status_of
from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.client.granted import Granted
from tuner.dispatch.client.line import GrpcLine, Line, OpenLine
from tuner.dispatch.grant import LONGEST_KIND
from tuner.dispatch.outbox import Outbox
from tuner.dispatch.request import ModelForm, Refused, Status, TraceContext

__all__ = ["AsyncGrantClient"]

MOST_TRIES = 4
"""Backends that a request is sent to before it is given up."""
GRACE = 0.05
"""s after its timeout that a request waits for the dispatcher's refusal, which says more than ours."""
FAREWELL = 1.0
"""s that the last messages may take at the end."""
UNUSED = 3600.0
"""s after which the connection to a backend that was not used is closed, when another one is opened."""
ANSWER_IN = 2.0
"""s that a backend may take to say whether it is there."""
AWAY = "the dispatcher ended the conversation"


class AsyncGrantClient:
    """Keeps requests until the scheduler grants them, and sends them straight to the granted backend.

    It is used in one event loop, and by any number of tasks there. A lost dispatcher is called again by the
    next request.

    Args:
        address: The dispatcher's ``listen.grpc``, as ``host:port``.
        token: That it asks for, if it has a ``token_file``.
        credentials: For TLS, as :func:`grpc.ssl_channel_credentials` makes them; in the clear if None.
        connect: Makes the client of a backend from its ``host:port``, for :meth:`infer`; a plain
            :class:`tritonclient.grpc.aio.InferenceServerClient` if None. Of another class `infer` and `close`
            are used, and `is_model_ready` if it has it: without it, a backend that says that it is not
            available is lost. It gets `model_version` where the dispatcher's file asks for one.
        open_line: Opens the conversation, in place of gRPC.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        credentials: Any = None,
        connect: Callable[[str], Any] | None = None,
        open_line: OpenLine | None = None,
    ) -> None:
        self._open_line = open_line or (lambda: GrpcLine(address, token, credentials))
        self._connect = connect or _triton
        self._backends: dict[str, Any] = {}
        self._used: dict[str, float] = {}  # when each of them was used last, s
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Granted]] = {}
        self._outbox = Outbox()
        self._line: Line | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the conversation, and close the connections to the backends."""
        self._outbox.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for backend in self._backends.values():
            await backend.close()
        self._backends.clear()
        self._used.clear()

    @asynccontextmanager
    async def grant(
        self,
        session: str,
        *,
        items: int = 1,
        kind: str = "",
        timeout: float | None = None,
        trace: TraceContext | None = None,
    ) -> AsyncIterator[Granted]:
        """Wait until a request may be sent; send it in the block, which ends with the answer.

        Args:
            session: The session.
            items: Of the request, at least 1; of a model that does not batch, 0 is allowed, too.
            kind: What requests of one batch have in common, such as the shapes of their inputs; 2,000
                characters at most.
            timeout: s after which the answer is worthless; the session's SLO if None.
            trace: The span of a distributed trace that the request belongs to.

        Raises:
            Refused: It may not be sent: the deadline cannot be kept, there is no backend, or what is asked
                makes no sense.
            TypeError: An argument has another type.
        """
        if timeout is not None and not math.isfinite(timeout):
            raise Refused(Status.INVALID, f"timeout is a number of seconds, not {timeout}")
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        items = operator.index(items)  # it may be numpy's, which JSON does not know
        asked: dict[str, Any] = {"ask": number, "session": session, "items": items, "kind": kind}
        asked |= {} if timeout is None else {"timeout": float(timeout)}
        granted = await self._granted(asked | dict(trace.headers() if trace is not None else ()))
        began, whole = loop.time(), False
        try:
            yield granted
            whole = True
        finally:
            self._outbox.say(end=number, **_came_of_it(granted, loop.time() - began, whole=whole))

    async def infer(
        self,
        session: str,
        inputs: Sequence[Any],
        *,
        outputs: Sequence[Any] | None = None,
        timeout: float | None = None,
        trace: TraceContext | None = None,
    ) -> Any:
        """Infer as :meth:`tritonclient.grpc.aio.InferenceServerClient.infer` does.

        A backend that is lost is replaced by another one, if there is time. One that says by itself that it
        is not available, and answers for the model, is not lost: it may have executed the request.

        Args:
            session: The session.
            inputs: As `tritonclient.grpc.InferInput`.
            outputs: As `tritonclient.grpc.InferRequestedOutput`; all if None.
            timeout: s after which the answer is worthless; the session's SLO if None.
            trace: The span of a distributed trace that the request belongs to.

        Returns:
            A `tritonclient.grpc.InferResult`.

        Raises:
            Refused: There is no answer in time.
            InferenceServerException: The backend refuses the request.
        """
        from tritonclient.utils import InferenceServerException

        loop = asyncio.get_running_loop()
        ends = None if timeout is None else loop.time() + timeout
        items, kind = next(iter(inputs[0].shape()), 0), _kind(inputs, outputs)
        for _ in range(MOST_TRIES):
            left = None if ends is None else ends - loop.time()
            async with self.grant(session, items=items, kind=kind, timeout=left, trace=trace) as granted:
                ends = loop.time() + granted.timeout
                backend = self._backend(granted.address)
                try:
                    return await backend.infer(
                        granted.model,
                        inputs,
                        outputs=outputs,
                        client_timeout=granted.timeout,
                        **_options_of(granted),
                    )
                except InferenceServerException as error:
                    why, code = str(error), _code_of(error)
                    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                        granted.unanswered = True
                    elif await _is_lost(backend, granted, error, (ends - loop.time()) / 2):
                        granted.lost(why)  # in the other half of the time another backend may answer
                    else:
                        granted.refused(status_of(code))
                        raise
            if granted.unanswered:
                raise Refused(Status.DEADLINE, f"{granted.address} did not answer in time")
        raise Refused(Status.UNAVAILABLE, why)

    def _backend(self, address: str) -> Any:
        now = asyncio.get_running_loop().time()
        if address not in self._backends:
            self._close_unused(now)
            self._backends[address] = self._connect(address)
        self._used[address] = now
        return self._backends[address]

    def _close_unused(self, now: float) -> None:
        """Close the connections to backends that were not used for long: they may be gone for good."""
        for address in [address for address, used in self._used.items() if now - used > UNUSED]:
            del self._used[address]
            task = asyncio.get_running_loop().create_task(self._backends.pop(address).close())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _granted(self, asked: dict[str, Any]) -> Granted:
        """Ask for a grant, and wait for it.

        Raises:
            Refused: There is none, or no answer in time.
        """
        self._call()
        self._outbox.say(**asked)
        number: int = asked["ask"]
        waiting: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        timeout: float | None = asked.get("timeout")
        try:
            async with asyncio.timeout(None if timeout is None else max(timeout, 0.0) + GRACE):
                return await waiting
        except TimeoutError:
            self._outbox.say(cancel=number)  # a grant that comes now is handed back
            raise Refused(Status.DEADLINE, "the dispatcher did not answer in time") from None
        except asyncio.CancelledError:
            self._outbox.say(cancel=number)
            raise
        finally:
            del self._waiting[number]

    def _call(self) -> None:
        """Begin a conversation if there is none."""
        if self._line is None:
            self._line = self._open_line()
            self._outbox = Outbox()
            task = asyncio.get_running_loop().create_task(self._converse(self._line, self._outbox))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _converse(self, line: Line, outbox: Outbox) -> None:
        """Speak and listen until the dispatcher goes away or either fails; then nobody waits any more."""
        loop = asyncio.get_running_loop()
        talking = [loop.create_task(self._listen(line)), loop.create_task(_speak(line, outbox))]
        try:
            await asyncio.wait(talking, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._line = None
            end = next(filter(None, map(_failure, talking)), Refused(Status.UNAVAILABLE, AWAY))
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(end)
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)
            await line.close()

    async def _listen(self, line: Line) -> None:
        """Hear the dispatcher until it goes away.

        Raises:
            Refused: It has gone away.
        """
        while (frame := await line.read()) is not None:
            for message in json.loads(frame):
                self._hear(message)
        raise Refused(Status.UNAVAILABLE, AWAY)

    def _hear(self, message: dict[str, Any]) -> None:
        number: int = message["grant" if "grant" in message else "refused"]
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return  # it was withdrawn at the same moment, and the dispatcher knows
        if "grant" in message:
            parent = message.get("traceparent")
            trace = TraceContext(parent, message.get("tracestate", "")) if parent else None
            # A dispatcher that is older does not say what is asked of the model.
            form = ModelForm(*(message.get(name, "") for name in ModelForm._fields))
            waiting.set_result(Granted(message["backend"], message["model"], message["timeout"], trace, form))
        else:
            waiting.set_exception(Refused(Status(message["status"]), message["reason"]))


def _came_of_it(granted: Granted, seconds: float, *, whole: bool) -> dict[str, Any]:
    """Return what the dispatcher hears of a request at its end.

    Args:
        granted: The request.
        seconds: From sending it to its end.
        whole: Whether its block ended without an exception.
    """
    if granted.problem:
        return {"lost": granted.problem}
    if granted.refusal is not None:
        return {"seconds": seconds, "status": granted.refusal.value}
    return {"seconds": seconds} if whole and not granted.unanswered else {}


def _code_of(error: Any) -> grpc.StatusCode:
    """Return the status of an error of Triton's client, such as ``StatusCode.INTERNAL``."""
    code = grpc.StatusCode.__members__.get(str(error.status()).rpartition(".")[2])
    return grpc.StatusCode.INTERNAL if code is None or code is grpc.StatusCode.OK else code


def _version_of(granted: Granted) -> dict[str, Any]:
    """Return the options by which a backend's client asks for the version that is asked for, if any is."""
    return {"model_version": granted.form.version} if granted.form.version else {}


def _options_of(granted: Granted) -> dict[str, Any]:
    """Return the options by which a backend's client asks for the version, and says whose span it is."""
    headers = {} if granted.trace is None else {"headers": dict(granted.trace.headers())}
    return _version_of(granted) | headers


async def _is_lost(backend: Any, granted: Granted, error: Any, left: float) -> bool:
    """Return whether a backend is lost: its connection broke, or it is away; a model may say that, too.

    Args:
        backend: Its client.
        granted: What was asked of it.
        error: What came of that.
        left: s that the backend may take to show it; at most `ANSWER_IN` are waited for.
    """
    from tritonclient.utils import InferenceServerException

    code = _code_of(error)
    if isinstance(failure(code, str(error.message()), granted.address), Lost):
        return True  # gRPC has several statuses for that
    if code is not grpc.StatusCode.UNAVAILABLE:
        return False
    if not hasattr(backend, "is_model_ready"):
        return True
    patience = min(ANSWER_IN, max(left, 0.0))
    try:
        return not await backend.is_model_ready(
            granted.model, client_timeout=patience, **_version_of(granted)
        )
    except InferenceServerException:
        return True


async def _speak(line: Line, outbox: Outbox) -> None:
    await outbox.run(line.write)
    await line.finish()


def _failure(task: asyncio.Task[None]) -> Refused | None:
    """Return why a task of a conversation ended; None if nothing failed."""
    error = task.exception() if task.done() and not task.cancelled() else None
    if error is None or isinstance(error, Refused):
        return error
    return Refused(Status.UNAVAILABLE, f"the conversation broke: {error!r}")


def _triton(address: str) -> Any:
    from tritonclient.grpc.aio import InferenceServerClient

    return InferenceServerClient(address, channel_args=data_options(host_of(address)))


def _kind(inputs: Sequence[Any], outputs: Sequence[Any] | None) -> str:
    """Return what requests of one batch have in common."""
    parts = sorted(f"{one.name()} {one.datatype()} {list(one.shape()[1:])}" for one in inputs)
    kind = "; ".join([*parts, *sorted(one.name() for one in outputs or ())])
    return kind if len(kind) <= LONGEST_KIND else hashlib.sha256(kind.encode()).hexdigest()
