"""Sends batches to Triton over KServe's HTTP protocol, with its extension for binary data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from tuner.adapters.connection.address import grpc_address
from tuner.adapters.triton.target import TritonTarget
from tuner.dispatch.backends.connection import Doubtful, Lost
from tuner.dispatch.backends.http_client import HttpAnswer, HttpClient
from tuner.dispatch.backends.triton import TritonConnection
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor
from tuner.printable import one_line

__all__ = ["TritonHttpConnection", "failure"]

JSON_LENGTH = "Inference-Header-Content-Length"
"""The header with the bytes of the JSON before binary data."""
REFUSED = {
    409: Status.INTERNAL,
    413: Status.TOO_LARGE,
    429: Status.EXHAUSTED,
}
"""Statuses that are about the batch: another server would answer it alike. Others are the client's fault
from 400 on, and the model's from 500 on."""
DOUBTFUL = {
    401: Status.UNAVAILABLE,
    403: Status.UNAVAILABLE,
    404: Status.NOT_FOUND,
    405: Status.UNSUPPORTED,
    501: Status.UNSUPPORTED,
    **dict.fromkeys((499, 502, 503, 504), Status.UNAVAILABLE),
}
"""Statuses that may be due to the request or to the server; see `tuner.dispatch.backends.channel`."""


class TritonHttpConnection(TritonConnection):
    """One Triton server that gets its batches over HTTP.

    Probes go the way of the batches, for they tell whether it is there and how far away it is.

    Args:
        targets: The models on it, at least one, each with the same HTTP port.
    """

    def __init__(self, targets: Sequence[TritonTarget]) -> None:
        super().__init__(targets)
        port = targets[0].http_port
        assert port is not None
        self._http = HttpClient(targets[0].host, port, grpc_address(targets[0].host, port))

    @property
    def probed_at(self) -> str:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        return self._http.address

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        head = question_of(like, inputs)
        headers = dict(like.trace.headers()) if like.trace else {}
        headers[JSON_LENGTH] = str(len(head))
        body = b"".join([head, *(tensor.content for tensor in inputs)])
        path = f"{self._path(model, like.version)}/infer"
        answer = await self._http.ask("POST", path, headers, body)
        if answer.status != 200:
            raise failure(answer, self._http.address)
        try:
            return reply_of(answer)
        except ValueError:
            raise Refused(
                Status.INTERNAL, f"{self._http.address} sent an answer of {model} that cannot be read"
            ) from None

    def _path(self, model: str, version: str) -> str:
        """Return where a model is, of which the version may be left to the target."""
        version = version or self._versions[model]
        path = f"/v2/models/{quote(model, safe='')}"
        return f"{path}/versions/{quote(version, safe='')}" if version else path

    async def ready(self, model: str, timeout: float) -> bool:
        """See :class:`~tuner.dispatch.backends.connection.Connection`."""
        try:
            async with asyncio.timeout(timeout):
                answer = await self._http.ask("GET", f"{self._path(model, '')}/ready")
        except (Lost, TimeoutError):
            return False
        return answer.status == 200

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
        await super().close()


def question_of(like: Request, inputs: tuple[Tensor, ...]) -> bytes:
    """Return the JSON that stands before the values of a batch.

    Args:
        like: A request of it.
        inputs: Of the whole batch.

    Raises:
        Refused: A parameter has no form in JSON.
    """
    question: dict[str, Any] = {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "parameters": {"binary_data_size": len(tensor.content)},
            }
            for tensor in inputs
        ],
        "parameters": {**like.parameters, "binary_data_output": True},
    }
    if like.outputs:
        question["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in like.outputs]
    try:
        return json.dumps(question, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise Refused(Status.INVALID, "a parameter is not a finite number") from None


class _Place(BaseModel):
    binary_data_size: NonNegativeInt


class _Output(BaseModel):
    name: str
    datatype: str
    shape: tuple[NonNegativeInt, ...]
    parameters: _Place


class _Answer(BaseModel):
    model_version: str = ""
    outputs: tuple[_Output, ...] = Field(default=())


def reply_of(answer: HttpAnswer) -> Reply:
    """Return the reply that an answer holds.

    Raises:
        ValueError: It holds none.
    """
    body = answer.body
    length = int(answer.headers.get(JSON_LENGTH.lower().encode(), len(body)))
    found = _Answer.model_validate_json(body[:length])
    outputs, at = [], length
    for one in found.outputs:
        end = at + one.parameters.binary_data_size
        outputs.append(Tensor(one.name, one.datatype, one.shape, body[at:end]))
        at = end
    if not 0 <= length <= at == len(body):
        raise ValueError("the values are not as long as announced")
    return Reply(tuple(outputs), found.model_version)


class _Error(BaseModel):
    error: str


def failure(answer: HttpAnswer, address: str) -> Refused:
    """Return what an answer without a reply means for a batch, and for the server, which has sent it.

    Args:
        answer: Its status is not 200.
        address: The server's address, for the message.
    """
    try:
        words = _Error.model_validate_json(answer.body).error
    except ValidationError:
        words = answer.body.decode(errors="replace")
    words = one_line(words).rstrip(" .")
    said = f"{address}: {words or f'status {answer.status}'}"
    if answer.status in DOUBTFUL:
        return Doubtful(DOUBTFUL[answer.status], said)
    usual = Status.INVALID if 400 <= answer.status < 500 else Status.INTERNAL
    return Refused(REFUSED.get(answer.status, usual), said)
