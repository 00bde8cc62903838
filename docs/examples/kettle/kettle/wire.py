"""Requests of our own to a Kettle: what the load generator imports, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tuner.adapters import Endpoint, FilledInput, Input

__all__ = ["METHOD", "encode", "read_inputs"]

METHOD = "/kettle.Kettle/Brew"


async def read_inputs(channel: Any, endpoint: Endpoint, timeout: float) -> list[Input]:
    """Ask the server for the inputs of the model."""
    answer = await channel.unary_unary("/kettle.Kettle/Inputs")(endpoint.model.encode(), timeout=timeout)
    return [Input(one["name"], one["datatype"], tuple(one["shape"])) for one in json.loads(answer)]


def encode(endpoint: Endpoint, inputs: Iterable[FilledInput]) -> bytes:
    """Return a request with one row: the model's name, a zero byte, and the inputs."""
    return b"\0".join([endpoint.model.encode(), *(content for _, _, content in inputs)])
