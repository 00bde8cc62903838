"""Answers gRPC calls from bytes to bytes: whoever may not call, waits too long or errs gets a status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from tuner.dispatch.front.access import TOKEN_NEEDED, Access
from tuner.dispatch.front.intake import Entrance, milliseconds
from tuner.dispatch.grant import WELCOME
from tuner.dispatch.request import Refused, Status

__all__ = ["CODES", "UNSUPPORTED", "Call", "Calls", "Method", "Talk"]

CODES = {
    Status.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Status.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Status.UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    Status.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Status.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Status.DEADLINE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Status.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Status.INTERNAL: grpc.StatusCode.INTERNAL,
}
LONGEST_WAIT = 10.0
"""From the start of a call to the end of its message, s."""
UNSUPPORTED = "{method} is not offered: a scheduler in front of several servers answers single requests"


class Call:
    """What a method may ask about the call that it answers."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def slo(self) -> float | None:
        """Return the time until the deadline, s, as the call or its header ``x-slo-ms`` says.

        Raises:
            Refused: The header is no number.
        """
        named = milliseconds(self.header("x-slo-ms"))
        remaining: float | None = self._context.time_remaining()
        if named is None or remaining is None:
            return remaining if named is None else named
        return min(named, remaining)

    def may(self, access: Access) -> bool:
        """Return whether it brings the token, if one is needed."""
        return access.token is None or access.allows(self.header("authorization"))

    def header(self, name: str) -> str | None:
        """Return the value of a header; None without it."""
        for key, value in self._context.invocation_metadata():
            if key == name:
                return value if isinstance(value, str) else value.decode("latin-1")
        return None


Method = Callable[[bytes, Call], Awaitable[bytes]]
"""Returns the answer to a message.

Raises:
    Refused: There is none.
"""


Talk = Callable[[Callable[[], Awaitable[bytes | None]], Callable[[bytes], Awaitable[None]]], Awaitable[None]]
"""Talks with a client, by what reads its next message, None at the end, and what writes one.

Raises:
    Refused: Why the conversation ends early.
"""


class Patience:
    """Waits for the messages of calls, each in its task, and gives up those whose message does not come.

    All may wait equally long, so one timer is enough: it looks at the call that has waited longest. A timer
    for each call (``asyncio.timeout``) costs more than reading the message.
    """

    def __init__(self) -> None:
        self._since: dict[asyncio.Task[Any], float] = {}  # in the order in which they began
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, message: Awaitable[Any]) -> Any:
        """Wait for a message.

        Raises:
            Refused: It did not come in time.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "coroutines run in tasks"
        self._since[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(LONGEST_WAIT, self._give_up)
        try:
            return await message
        except asyncio.CancelledError:
            if task not in self._late:  # the client went away
                raise
            task.uncancel()
            raise Refused(Status.DEADLINE, f"no message came within {LONGEST_WAIT:g} s") from None
        finally:
            del self._since[task]
            self._late.discard(task)

    def _give_up(self) -> None:
        """End the waiting of those that have waited too long, and look again when the next one will have."""
        self._timer = None
        loop = asyncio.get_running_loop()
        for task, since in self._since.items():
            if since + LONGEST_WAIT > loop.time():
                self._timer = loop.call_at(since + LONGEST_WAIT, self._give_up)
                return
            self._late.add(task)
            task.cancel()


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Finds who answers a call.

    Messages are bytes here, so that one that cannot be read is answered by us and not by gRPC.

    Args:
        methods: By their full names.
        free: Which of them need no token.
        access: Says who may call the others.
        talks: Conversations by their full names.
        entrance: Lets calls in, of all kinds.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        free: frozenset[str],
        access: Access,
        talks: Mapping[str, Talk],
        entrance: Entrance,
    ) -> None:
        patience = Patience()
        self.methods = {name: (method, None if name in free else access) for name, method in methods.items()}
        """By their full names, with who says who may call them: nobody if None."""
        self.entrance = entrance
        self._handlers = {
            name: grpc.stream_unary_rpc_method_handler(_answer(method, needed, patience, entrance))
            for name, (method, needed) in self.methods.items()
        }
        self._handlers |= {
            name: grpc.stream_stream_rpc_method_handler(_converse(talk, access, entrance))
            for name, talk in talks.items()
        }
        self._services = {name.rpartition("/")[0] + "/" for name in methods}

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call; None if nobody knows its service."""
        name = handler_call_details.method
        handler = self._handlers.get(name)
        if handler is None and name.rpartition("/")[0] + "/" in self._services:
            return grpc.stream_stream_rpc_method_handler(_unsupported(name))
        return handler


def _answer(method: Method, access: Access | None, patience: Patience, entrance: Entrance) -> Any:
    async def answer(_messages: Any, context: Any) -> bytes:
        call = Call(context)
        try:
            with entrance:
                if access is not None:
                    await _check_token(call, context, access)
                # A call of one message is read as a stream: for others gRPC itself waits, without an end.
                message = await patience.wait(context.read())
                if message is grpc.aio.EOF:
                    raise Refused(Status.INVALID, "the call ended before its message")
                return await method(message, call)
        except Refused as refused:
            await context.abort(CODES[refused.status], refused.reason)
            raise AssertionError("abort raises") from None

    return answer


def _converse(talk: Talk, access: Access, entrance: Entrance) -> Any:
    async def converse(_messages: Any, context: Any) -> None:
        async def read() -> bytes | None:
            message = await context.read()
            return None if message is grpc.aio.EOF else bytes(message)

        try:
            with entrance:
                await _check_token(Call(context), context, access)
                await context.send_initial_metadata(((WELCOME, "1"),))  # clients wait for it, then speak
                await talk(read, context.write)
        except Refused as refused:
            await context.abort(CODES[refused.status], refused.reason)

    return converse


async def _check_token(call: Call, context: Any, access: Access) -> None:
    """End a call that does not bring the token, if one is needed."""
    if not call.may(access):
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, TOKEN_NEEDED)


def _unsupported(name: str) -> Any:
    async def refuse(_messages: Any, context: Any) -> None:
        method = name.rpartition("/")[2]
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, UNSUPPORTED.format(method=method))

    return refuse
