"""Frames: what travels together, and how much of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tuner.dispatch.outbox import LONGEST_FRAME, Outbox
from tuner.dispatch.request import Refused


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


def test_what_cannot_be_said() -> None:
    """Who says it hears so; the longest message that the dispatcher takes is written."""
    longest = LONGEST_FRAME - len('[{"kind": ""}]')
    (frame,) = written({"kind": "x" * longest})
    assert len(frame) == LONGEST_FRAME
    with pytest.raises(Refused, match="at most 262142 bytes, not 262143"):
        written({"kind": "x" * (longest + 1)})
    with pytest.raises(TypeError, match="bytes is not JSON"):
        written({"kind": b"x"})
