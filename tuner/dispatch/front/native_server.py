"""A gRPC server in Rust before the other one: small requests cost a fraction of what they cost there.

``pygrpc-native`` speaks HTTP/2 in threads of its own, without Python's lock, and hands over whole calls,
several at a time. What is no call of one message goes on to the server behind it, by a socket in a folder of
ours: conversations about grants, and what is refused as unsupported. It has no TLS, and reads messages to
their end, however long they are and however slowly they come: its clients must be trusted.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from pygrpc_native import EVENT_CANCEL, NativeGrpcFront

from tuner.dispatch.front.access import TOKEN_NEEDED
from tuner.dispatch.front.calls import CODES, Call, Calls
from tuner.dispatch.front.intake import FAILED, Oversize
from tuner.dispatch.request import Refused
from tuner.errors import InvalidInput

__all__ = ["NativeServer"]

AT_ONCE = 64
"""Calls that are handed over together."""
LOOK = 0.05
"""s between two looks at whether all answers are written, at the end."""
_log = logging.getLogger(__name__)


class _Details(NamedTuple):
    """What a call says beside its message, as :class:`.Call` asks for it."""

    metadata: tuple[tuple[str, str | bytes], ...]
    peer: str
    remaining: float | None

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return its headers."""
        return self.metadata

    def time_remaining(self) -> float | None:
        """Return the time until its deadline when it was handed over, s; None without one."""
        return self.remaining


class NativeServer:
    """Answers calls of one message; it begins with :meth:`start` and ends with :meth:`stop`.

    Args:
        place: Where it listens, as ``host:port``.
        calls: Who answers them.
        largest: Bytes of a message.
        limits: Further arguments of `NativeGrpcFront`.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, place: str, calls: Calls, largest: int, limits: Mapping[str, Any]) -> None:
        self._calls = calls
        self._names = list(calls.methods)
        self._largest = largest
        names = [(name, False) for name in self._names]
        self._front = NativeGrpcFront(place, names, call_details=True, metrics=True, **limits)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._folder = ""
        self._behind: Any = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._front.bound_port

    async def start(self, behind: Any) -> None:
        """Begin to answer on this loop; a server of gRPC's own, not yet started, gets all other calls.

        Raises:
            InvalidInput: There is no place for the socket between the two.
        """
        loop = asyncio.get_running_loop()
        try:
            self._folder = tempfile.mkdtemp(prefix="servetune-")
            socket = str(Path(self._folder) / "other-calls")
            behind.add_insecure_port(f"unix:{socket}")
        except (OSError, RuntimeError) as error:
            await self.stop(None)
            problem = f"native needs a folder for a socket, and has none ({error})"
            raise InvalidInput(
                "listen.grpc_server", problem, "let TMPDIR name one with a short path"
            ) from None
        self._behind = behind
        await behind.start()
        self._front.set_fallback(socket)
        self._front.start()
        threading.Thread(target=self._listen, args=(loop,), name="native gRPC", daemon=True).start()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand calls over to the loop until the end."""
        while (events := self._front.recv_batch_details(AT_ONCE)) is not None:
            try:
                loop.call_soon_threadsafe(self._hear, loop, events)
            except RuntimeError:  # the loop is closed
                self._front.close()

    def _hear(self, loop: asyncio.AbstractEventLoop, events: Sequence[tuple[Any, ...]]) -> None:
        for kind, number, place, message, _, details in events:
            if kind == EVENT_CANCEL:
                if (task := self._tasks.pop(number, None)) is not None:
                    task.cancel()
            else:
                call = Call(_Details(*details))
                self._tasks[number] = loop.create_task(self._answer(number, place, message, call))

    async def _answer(self, number: int, place: int, message: bytes, call: Call) -> None:
        """Answer a call of the method with this place, or refuse it."""
        method, access = self._calls.methods[self._names[place]]
        try:
            with self._calls.entrance:
                if access is not None and not call.may(access):
                    self._fail(number, grpc.StatusCode.UNAUTHENTICATED, TOKEN_NEEDED)
                    return
                if len(message) > self._largest:
                    raise Oversize(f"message larger than max ({len(message)} vs. {self._largest} bytes)")
                answer = await method(message, call)
        except Refused as refused:
            self._fail(number, CODES[refused.status], refused.reason)
        except Exception:
            _log.exception("a call failed in the dispatcher")
            self._fail(number, grpc.StatusCode.INTERNAL, FAILED)
        else:
            self._front.respond(number, answer)
        finally:
            self._tasks.pop(number, None)

    def _fail(self, number: int, code: grpc.StatusCode, reason: str) -> None:
        self._front.fail(number, code.value[0], reason)

    async def stop(self, grace: float | None) -> None:
        """End; calls get some time, s, until their answers are written, and are withdrawn then."""
        behind = asyncio.ensure_future(self._behind.stop(grace)) if self._behind is not None else None
        ends = asyncio.get_running_loop().time() + (grace or 0.0)
        while self._unwritten() and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(LOOK)
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if behind is not None:
            await behind
        if grace:
            await asyncio.sleep(LOOK)  # an answer counts as written once its last bytes are on their way
        await asyncio.to_thread(self._front.close)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _unwritten(self) -> int:
        """Return how many calls have begun whose answers are not written."""
        counts = self._front.metrics()
        if counts is None:
            return 0
        begun = sum(one["started"] for one in counts["methods"].values())
        ended = sum(
            one["count"] for method in counts["methods"].values() for one in method["status"].values()
        )
        return int(begun - ended)
