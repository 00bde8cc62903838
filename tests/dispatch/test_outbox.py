"""Frames: what travels together, and how much of it."""

from __future__ import annotations

import asyncio
import json

from tuner.dispatch.outbox import LONGEST_FRAME, Outbox


def written(*messages: dict[str, object]) -> list[bytes]:
    """Say messages at once; return the frames."""
    frames: list[bytes] = []

    async def write(frame: bytes) -> None:
        frames.append(frame)

    async def main() -> None:
        outbox = Outbox()
        for message in messages:
            outbox.say(**message)
        outbox.end()
        await outbox.run(write)

    asyncio.run(main())
    return frames


def test_a_few_messages() -> None:
    """They travel in one frame."""
    (frame,) = written({"ask": 1, "kind": "ä"}, {"cancel": 1})
    assert json.loads(frame) == [{"ask": 1, "kind": "ä"}, {"cancel": 1}]


def test_a_burst() -> None:
    """It travels in order, in frames that the dispatcher takes, with many messages in each."""
    burst = [{"ask": number, "session": "m", "kind": "x" * (number % 500)} for number in range(1500)]

    frames = written(*burst)

    assert [message for frame in frames for message in json.loads(frame)] == burst
    assert max(map(len, frames)) < LONGEST_FRAME / 2
    assert len(frames) < 15
