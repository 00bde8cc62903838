"""Calls of a dispatcher, and what came of them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any

import numpy as np

from tests.dispatch.fakes import Bench, request
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.request import Refused, Reply, Request, Tensor


def payload(number: int) -> bytes:
    return struct.pack("<ii", number, ~number)


async def reply_to(dispatcher: Dispatcher, request: Request) -> Reply:
    """Return the reply to a request, which a front would write as a message."""
    replies: list[Reply] = []

    def write(reply: Reply) -> bytes:
        replies.append(reply)
        return b""

    await dispatcher.infer(request, write)
    return replies[0]


async def outcome(call: Coroutine[Any, Any, Reply]) -> Reply | Refused:
    try:
        return await call
    except Refused as refused:
        return refused


async def poisson(dispatcher: Dispatcher, count: int, rate: float, seed: int = 0) -> list[Reply | Refused]:
    """Send numbered requests; return what came of each."""
    rng, tasks = np.random.default_rng(seed), []
    for number in range(count):
        tasks.append(asyncio.ensure_future(outcome(reply_to(dispatcher, request(payload(number))))))
        await asyncio.sleep(float(rng.exponential(1 / rate)))
    return await asyncio.gather(*tasks)


def echoes(answers: list[Reply | Refused]) -> int:
    """Return how many were answered, each with its own payload."""
    answered = [(number, one) for number, one in enumerate(answers) if isinstance(one, Reply)]
    for number, one in answered:
        assert one.outputs == (Tensor("x-out", "FP32", (1, 2), payload(number)),)
    return len(answered)


async def largest(found: Bench, dispatcher: Dispatcher, like: Request) -> int:
    """Return the largest of the batches of requests that come together."""
    found.servers["a:1"].batches.clear()
    await asyncio.gather(*[reply_to(dispatcher, like) for _ in range(20)])
    return max(items for _, items in found.servers["a:1"].batches)
