"""Frontends that say anything at all to a dispatcher that grants: each gets its due, and no other notices."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.dispatch.client.frontends import frontend
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, bench
from tests.fuzz.mutation import damaged_bytes
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front.conversation import Conversation
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.request import Refused, Status

ODD: tuple[Any, ...] = (None, True, -1, 0, 1.5, 1 << 60, "1", "", [], {}, float("nan"), float("inf"), -1e308)
MOST = 16
"""Items of a batch."""
GRANTED = {"grant", Status.DEADLINE.value, Status.EXHAUSTED.value, Status.UNAVAILABLE.value}
"""What may come of a request to which nothing is wrong."""


def ask(random: Random) -> dict[str, Any]:
    """An ask; a few numbers only, so that some are still in use."""
    asked: dict[str, Any] = {"ask": random.randrange(6), "session": random.choice(["m", "m", "m", "nobody"])}
    if random.random() < 0.4:
        asked["items"] = random.choice([1, 2, MOST, MOST + 1, 10**9])
    if random.random() < 0.4:
        asked["timeout"] = random.choice([0.0, -1.0, 1e-6, 20 * MS, 1.0, 1e9])
    if random.random() < 0.3:
        asked["kind"] = random.choice(["", "a", "b", "x" * 1999])
    return asked


def message(random: Random) -> dict[str, Any]:
    """A message: most are well formed, some are about numbers that mean nothing, some are damaged."""
    said: dict[str, Any] = ask(random)
    kind = random.randrange(8)
    if kind < 3:
        said = {"end": random.randrange(6), "seconds": random.choice([0.0, 5 * MS, 1e6])}
        said |= random.choice([{}, {}, {"status": "invalid"}])
    elif kind == 3:
        said = {random.choice(["end", "cancel"]): random.choice([random.randrange(6), 77])}
    elif kind == 4:
        said = {"end": random.randrange(6), "lost": random.choice(["it is away", "x" * 5000])}
    if random.random() < 0.03:
        said[random.choice([*said, "ask", "end", "traceparent"])] = random.choice(ODD)
    return said


def malformed(asked: dict[str, Any]) -> bool:
    """Whether a field of an ask has no value that it may have."""
    texts = [asked.get("session"), *(asked.get(name, "") for name in ("kind", "traceparent", "tracestate"))]
    items, timeout = asked.get("items", 1), asked.get("timeout")
    finite = timeout is None or (type(timeout) in (int, float) and math.isfinite(timeout))
    good = finite and type(items) is int and items > 0
    return not good or not all(isinstance(text, str) and len(text) <= 2000 for text in texts)


def expected(asked: dict[str, Any]) -> set[str]:
    """What may come of an ask."""
    if malformed(asked):
        return {Status.INVALID.value}
    if asked["session"] != "m":
        return {Status.NOT_FOUND.value}
    if (timeout := asked.get("timeout")) is not None and timeout <= 0:
        return {Status.DEADLINE.value}
    return {Status.INVALID.value} if asked.get("items", 1) > MOST else GRANTED


class Rogue:
    """A frontend that says what comes to its mind, hears what it is answered, and goes away somehow."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._open: dict[int, set[str]] = {}
        self.answers = 0
        self.refused: Refused | None = None

    def _frames(self) -> Iterator[bytes]:
        for _ in range(self._random.randint(1, 8)):
            messages = [message(self._random) for _ in range(self._random.randint(0, 4))]
            frame = json.dumps(messages).encode()
            if self._random.random() < 0.1:
                frame = damaged_bytes(self._random, frame)
            try:
                heard = json.loads(frame)
                self._note(heard)
            except (ValueError, TypeError, AttributeError, KeyError):
                self._open.clear()  # it is no message, or one whose answer is not worked out here
                self._certain = False
            yield frame

    _certain = True

    def _note(self, messages: Any) -> None:
        for one in messages:
            if "ask" in one and type(one["ask"]) is int:
                self._open.setdefault(one["ask"], set()).update(expected(one))

    async def run(self, dispatcher: Dispatcher, intake: Intake) -> None:
        frames = self._frames()

        async def read() -> bytes | None:
            await asyncio.sleep(self._random.choice([0, 1 * MS, 8 * MS]))
            return next(frames, None)

        async def write(frame: bytes) -> None:
            await asyncio.sleep(self._random.choice([0, 0.2 * MS]))
            for answer in json.loads(frame):
                self._hear(answer)

        talk = asyncio.ensure_future(Conversation(intake).run(read, write))
        if self._random.random() < 0.3:  # its connection breaks
            await asyncio.sleep(self._random.random() * 20 * MS)
            talk.cancel()
        (end,) = await asyncio.gather(talk, return_exceptions=True)
        assert end is None or isinstance(end, Refused | asyncio.CancelledError), repr(end)
        if isinstance(end, Refused):
            assert end.status is Status.INVALID
            self.refused = end

    def _hear(self, answer: dict[str, Any]) -> None:
        self.answers += 1
        how = "grant" if "grant" in answer else answer["status"]
        number = answer["grant" if "grant" in answer else "refused"]
        if self._certain:
            assert how in self._open[number], f"{answer} where {self._open[number]} was expected"
        if "grant" in answer:
            assert answer["backend"] == "triton://a:1"


async def honest(dispatcher: Dispatcher, rogues: list[asyncio.Task[None]]) -> int:
    """Use grants as one should, until the rogues are gone; return how many there were."""
    count = 0
    async with frontend(dispatcher) as client:
        while not all(rogue.done() for rogue in rogues):
            async with client.grant("m", timeout=2.0) as granted:
                assert (granted.model, granted.timeout > 1.0) == ("m", True)
                await asyncio.sleep(5 * MS)
            count += 1
    return count


def storm(random: Random, rogues: int = 30) -> list[Rogue]:
    """Let rogues loose on a dispatcher; check that others, and it itself, do not notice."""
    found = bench({"slo_ms": 300.0}, servers=1, policy="eager", mode="grants")
    made = [Rogue(random) for _ in range(rogues)]

    async def main() -> None:
        async with found as dispatcher:
            intake = Intake(dispatcher, 2000, dispatcher)
            tasks = []
            helping = None
            for rogue in made:
                tasks.append(asyncio.ensure_future(rogue.run(dispatcher, intake)))
                helping = helping or asyncio.ensure_future(honest(dispatcher, tasks))
                await asyncio.sleep(random.random() * 5 * MS)
            await asyncio.gather(*tasks)
            assert helping is not None
            assert await helping > 0
            await asyncio.sleep(1.0)
            (pool,) = dispatcher.pools
            assert (pool.up, pool.busy, pool.waiting("m")) == (True, False, 0)
            async with asyncio.timeout(1.0):
                await intake.drain()
        assert found.counts.switches == [("a:1", True)]

    run(main())
    return made


@pytest.mark.parametrize("seed", range(3))
def test_a_storm(seed: int) -> None:
    """Honest frontends get all their grants, the server stays up, and nothing is left over."""
    rogues = storm(Random(seed))

    assert sum(rogue.answers for rogue in rogues) > 10
    assert any(rogue.refused is not None for rogue in rogues)


@pytest.mark.long
@pytest.mark.slow
def test_many_storms() -> None:
    """Ten thousand rogues."""
    for seed in range(3, 336):
        storm(Random(seed))
