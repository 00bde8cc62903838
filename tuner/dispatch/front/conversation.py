"""The conversation of a frontend with the scheduler: asks come, grants go.

A frame is a JSON array of messages, so that what happens at once travels together; the dispatcher takes
262,144 bytes at most. A number names a request; the frontend chooses it, and may use it again after the end
of the request. One that it cancelled it must not use again in the same conversation: a grant or a refusal of
the old request may still be on its way, and while the old request is being withdrawn another ask with its
number is an error, which ends the conversation.

==================  ==============================================================  ========================
message             fields                                                          who says it
==================  ==============================================================  ========================
``ask``: number     ``session``, ``items``, ``kind``, ``timeout`` in s (optional)   the frontend
``grant``: number   ``backend`` as ``scheme://host:port``, ``model``, ``timeout``;  the scheduler: send it now
                    and ``version``, ``label``, ``signature`` of the model, where
                    the dispatcher's file says so
``refused``: ...    ``status``, ``reason``: do not send it                          the scheduler
``end``: number     ``seconds`` from sending to the answer, with a ``status`` as    the frontend, if granted
                    in ``refused`` if that was an error; or ``lost``: why the
                    backend could not be asked; none of them if no answer came in
                    time
``cancel``: ...     nobody waits for it any more                                    the frontend
==================  ==============================================================  ========================

An ask with ``traceparent`` and ``tracestate``, as in the headers of W3C, names the span that it belongs to;
if the dispatcher traces requests, the grant then names the span that the request belongs to.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tuner.dispatch.front.intake import Intake
from tuner.dispatch.grant import LONGEST_KIND, LONGEST_PROBLEM, Ask, Ended, Grant
from tuner.dispatch.outbox import LONGEST_FRAME, Outbox, Write
from tuner.dispatch.request import Refused, Status, TraceContext

__all__ = ["Conversation", "Read"]

MOST_UNREAD = 10_000
"""Messages that wait for a frontend that does not read."""
Read = Callable[[], Awaitable[bytes | None]]
"""Waits for the next frame; None at the end."""


class Conversation:
    """One frontend, until it goes away; then its asks are withdrawn, and its grants end.

    Args:
        intake: Takes the asks.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._granted: dict[int, Grant] = {}
        self._outbox = Outbox()

    async def run(self, read: Read, write: Write) -> None:
        """Talk until the frontend goes away.

        Raises:
            Refused: A message is malformed, other than an ask whose number can be answered; or the frontend
                does not read what it is answered.
        """
        writing = asyncio.get_running_loop().create_task(self._outbox.run(write))
        try:
            while (frame := await read()) is not None:
                for message in _messages(frame):
                    self._hear(message)
                if len(self._outbox) > MOST_UNREAD:
                    raise Refused(Status.EXHAUSTED, "the frontend does not read what it is answered")
        finally:
            for task in [writing, *self._asking.values()]:
                task.cancel()
            for grant in self._granted.values():
                grant.end(Ended())

    def _hear(self, message: Any) -> None:
        if "ask" in message:
            number = _number(message, "ask")
            if number in self._asking or number in self._granted:
                raise Refused(Status.INVALID, f"request {number} has not ended")
            try:
                ask = _ask(message)
            except Refused as refused:  # its frontend asks for others, too, who did nothing wrong
                self._refuse(number, refused)
                return
            task = asyncio.get_running_loop().create_task(self._ask(number, ask))
            self._asking[number] = task
            task.add_done_callback(lambda _: self._asking.pop(number))  # also if it is cancelled at once
        elif "end" in message:
            number, ended = _number(message, "end"), _ended(message)
            if (grant := self._granted.pop(number, None)) is not None:
                grant.end(ended)
        else:
            number = _number(message, "cancel")
            if (asking := self._asking.get(number)) is not None:
                asking.cancel()
            if (grant := self._granted.pop(number, None)) is not None:
                grant.end(Ended())

    async def _ask(self, number: int, ask: Ask) -> None:
        try:
            grant = await self._intake.grant(ask)
        except Refused as refused:
            self._refuse(number, refused)
        else:
            self._granted[number] = grant
            more = {name: value for name, value in grant.form._asdict().items() if value}
            more |= dict(grant.trace.headers()) if grant.trace is not None else {}
            self._outbox.say(
                grant=number, backend=grant.backend, model=grant.model, timeout=grant.timeout, **more
            )

    def _refuse(self, number: int, refused: Refused) -> None:
        self._outbox.say(refused=number, status=refused.status.value, reason=refused.reason)


def _messages(frame: bytes) -> list[Any]:
    if len(frame) > LONGEST_FRAME:
        raise Refused(Status.INVALID, f"a frame has at most {LONGEST_FRAME} bytes")
    try:
        found = json.loads(frame)
    except (ValueError, RecursionError):
        raise Refused(Status.INVALID, "a frame is a JSON array of messages") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Refused(Status.INVALID, "a frame is a JSON array of messages")
    return found


def _number(message: dict[str, Any], name: str) -> int:
    """Return a field that is a whole number of at least 0."""
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        problem = f"a message has ask, end or cancel: the number of a request, not {value!r:.40}"
        raise Refused(Status.INVALID, problem)
    return value


def _seconds(message: dict[str, Any], name: str) -> float | None:
    """Return a field that is a duration, s; None without it."""
    value = message.get(name)
    if value is None:
        return None
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # a whole number of JSON may have thousands of digits
            seconds = float(value)
    if not math.isfinite(seconds):
        raise Refused(Status.INVALID, f"{name} is a number of seconds, not {value!r:.40}")
    return seconds


def _ask(message: dict[str, Any]) -> Ask:
    session, items, kind = message.get("session"), message.get("items", 1), message.get("kind", "")
    if not isinstance(session, str) or not isinstance(kind, str) or len(kind) > LONGEST_KIND:
        problem = f"session and kind are texts; kind has at most {LONGEST_KIND} characters"
        raise Refused(Status.INVALID, problem)
    if not isinstance(items, int) or isinstance(items, bool) or items < 0:
        raise Refused(Status.INVALID, f"items is a whole number of at least 0, not {items!r:.40}")
    timeout = _seconds(message, "timeout")
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    return Ask(session, items, kind, deadline, _trace(message))


def _trace(message: dict[str, Any]) -> TraceContext | None:
    """Return which span an ask belongs to; None if it does not say so."""
    parent, state = message.get("traceparent", ""), message.get("tracestate", "")
    if not all(isinstance(one, str) and len(one) <= LONGEST_KIND for one in (parent, state)):
        problem = f"traceparent and tracestate are texts of at most {LONGEST_KIND} characters"
        raise Refused(Status.INVALID, problem)
    return TraceContext(parent, state) if parent else None


def _ended(message: dict[str, Any]) -> Ended:
    seconds, lost = _seconds(message, "seconds"), message.get("lost", "")
    if not isinstance(lost, str) or (seconds is not None and seconds < 0):
        raise Refused(Status.INVALID, "an end has seconds of at least 0, or lost: a sentence")
    if (said := message.get("status")) is None:
        return Ended(seconds, lost[:LONGEST_PROBLEM])
    known = [one.value for one in Status]
    if seconds is None or said not in known:
        problem = f"an end has a status beside its seconds, one of {', '.join(known)}, not {said!r:.40}"
        raise Refused(Status.INVALID, problem)
    return Ended(seconds, lost[:LONGEST_PROBLEM], Status(said))
