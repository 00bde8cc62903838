"""Requests that have no items, with grants: they are taken where they would be without."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.dispatch.client.frontends import Pipe
from tests.dispatch.clock import run
from tests.dispatch.fakes import bench
from tuner.dispatch.client import AsyncGrantClient, Refused, Status


class Input(NamedTuple):
    """As Triton's client has it."""

    dimensions: list[int]

    def name(self) -> str:
        return "x"

    def datatype(self) -> str:
        return "FP32"

    def shape(self) -> list[int]:
        return self.dimensions


class Backend:
    """The client of a backend that takes any shape."""

    async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
        return model

    async def close(self) -> None:
        pass


async def inferred(shape: list[int], **session: object) -> tuple[str | Status, list[Status | None]]:
    """Return the answer to a request of this shape, or why there is none, and what the dispatcher counts."""
    found = bench(session, mode="grants", servers=1)
    answer: str | Status
    async with found as dispatcher:
        client = AsyncGrantClient("nowhere", connect=lambda _: Backend(), open_line=lambda: Pipe(dispatcher))
        async with client:
            try:
                answer = await client.infer("m", [Input(shape)])
            except Refused as refused:
                answer = refused.status
    return answer, [status for _, status, _ in found.counts.ends]


@pytest.mark.parametrize("shape", [[], [0], [0, 2]])
def test_requests_without_items(shape: list[int]) -> None:
    """A model that does not batch takes them; of one that does, they are refused and counted."""
    assert run(inferred(shape, max_batch=0)) == ("m", [None])
    assert run(inferred(shape)) == (Status.INVALID, [Status.INVALID])
