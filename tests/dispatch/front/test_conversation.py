"""What frontends may say, and what becomes of those that say anything else."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.dispatch.clock import run
from tests.dispatch.front.echo import Echo
from tuner.dispatch.front.conversation import Conversation
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.grant import Ended
from tuner.dispatch.outbox import LONGEST_FRAME
from tuner.dispatch.request import Refused, Status


async def talk(service: Echo, *frames: bytes) -> list[dict[str, object]]:
    """Say frames to the dispatcher, each when it has answered the one before; return what it answered."""
    answers: list[dict[str, object]] = []
    left = list(frames)

    async def read() -> bytes | None:
        await asyncio.sleep(0.005)  # in virtual time: until nothing else is left to do
        return left.pop(0) if left else None

    async def write(frame: bytes) -> None:
        answers.extend(json.loads(frame))

    await Conversation(Intake(service, 3, service)).run(read, write)
    return answers


def said(*messages: object) -> bytes:
    return json.dumps(messages).encode()


def test_a_conversation() -> None:
    """Asks are answered by their numbers; what is open at the end is withdrawn, and what was granted ends."""
    service = Echo()
    frames = [
        said({"ask": 1, "session": "echo"}, {"ask": 2, "session": "DEADLINE"}, {"ask": 3, "session": "slow"}),
        said({"end": 1, "seconds": 0.25}, {"cancel": 3}, {"end": 77}, {"cancel": 88}),
        said({"ask": 1, "session": "echo"}, {"ask": 4, "session": "slow"}, {"ask": 5, "session": "nobody"}),
    ]

    answers = run(talk(service, *frames))

    grant = {"grant": 1, "backend": "triton://backend:1", "model": "model", "timeout": 0.5}
    refused = [
        {"refused": 2, "status": "deadline", "reason": "it is DEADLINE"},
        {"refused": 5, "status": "not found", "reason": "there is no session 'nobody'"},
    ]
    assert answers == [grant, refused[0], grant, refused[1]]
    assert service.ended == [Ended(0.25), Ended()]


def test_too_many_asks() -> None:
    """Those that exceed the limit are refused."""
    asks = [{"ask": number, "session": "slow"} for number in range(5)]
    answers = run(talk(Echo(), said(*asks)))
    assert [(one["refused"], one["status"]) for one in answers] == [(3, "exhausted"), (4, "exhausted")]


@pytest.mark.parametrize(
    "fields",
    [
        {"session": None},
        {"items": -1},
        {"items": 1.5},
        {"kind": "x" * 3000},
        {"timeout": "soon"},
        {"timeout": True},
        {"timeout": 10**400},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"traceparent": 1},
    ],
)
def test_an_ask_that_is_malformed(fields: dict[str, object]) -> None:
    """It is refused alone: the other requests of its frontend go on."""
    asks = [{"ask": number, "session": "echo"} for number in range(3)]
    answers = run(talk(Echo(), said(asks[0], asks[1] | fields), said(asks[2])))
    assert [one.get("status", "granted") for one in answers] == ["invalid", "granted", "granted"]
    assert answers[0]["refused"] == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b"{}",
        b"[1]",
        b" " * (LONGEST_FRAME + 1),
        said({}),
        said({"ask": -1, "session": "echo"}),
        said({"ask": True, "session": "echo"}),
        said({"ask": 1 << 60, "session": "echo"}),
        said({"ask": 1, "session": "slow"}, {"ask": 1, "session": "slow"}),
        said({"ask": 1, "session": "slow"}, {"cancel": 1}, {"ask": 1, "session": "slow"}),
        said({"end": "1"}),
        said({"cancel": None}),
    ],
)
def test_what_is_no_message(frame: bytes) -> None:
    """It ends the conversation of this frontend, with the reason."""
    with pytest.raises(Refused) as refused:
        run(talk(Echo(), frame))
    assert refused.value.status is Status.INVALID


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"seconds": -1}, "seconds of at least 0"),
        ({"status": "invalid"}, "a status beside its seconds"),
        ({"seconds": 1, "status": "odd"}, "not 'odd'"),
        ({"seconds": 1, "status": ["invalid"]}, "a status beside its seconds"),
    ],
)
def test_an_end_that_is_malformed(fields: dict[str, object], why: str) -> None:
    """The grant ends with the conversation, and keeps its backend busy no longer."""
    service = Echo()
    with pytest.raises(Refused, match=why):
        run(talk(service, said({"ask": 1, "session": "echo"}), said({"end": 1, **fields})))
    assert service.ended == [Ended()]


def test_a_backend_that_refuses() -> None:
    """Its frontend says so, with a status."""
    service = Echo()
    run(
        talk(
            service,
            said({"ask": 1, "session": "echo"}),
            said({"end": 1, "seconds": 0.5, "status": "not found"}),
        )
    )
    assert service.ended == [Ended(0.5, status=Status.NOT_FOUND)]


def test_a_dispatcher_that_grants_nothing() -> None:
    """It says so to each ask."""

    async def main() -> None:
        with pytest.raises(Refused, match="mode: proxy") as refused:
            await Intake(Echo(), 3).grant(None)  # type: ignore[arg-type]
        assert refused.value.status is Status.UNSUPPORTED

    run(main())
