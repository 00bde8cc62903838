"""Versions of a model: all that serve are there, and no other is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2

from tests.dispatch.front.echo import Echo, running
from tuner.adapters.tfserving.client import VersionState
from tuner.adapters.tfserving.schema import message
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.front.prediction import METADATA, PredictionService
from tuner.dispatch.request import Metadata, Refused, Status

STATES = {1: VersionState.AVAILABLE, 2: VersionState.AVAILABLE, 3: VersionState.LOADING, 4: VersionState.END}


def tfserving(method: str, _asked: bytes) -> bytes:
    """Answer as a TensorFlow Serving with some versions, whose newest that serves is 2."""
    if method.endswith("GetModelStatus"):
        states = message("GetModelStatusResponse")()
        for version, state in STATES.items():
            states.model_version_status.add(version=version, state=state)
        return bytes(states.SerializeToString())
    found = message("GetModelMetadataResponse")()
    found.model_spec.version.value = 2
    found.metadata["signature_def"].value = message("SignatureDefMap")().SerializeToString()
    return bytes(found.SerializeToString())


def triton(_method: str, asked: bytes) -> bytes:
    """Answer as a Triton: asked for one version, it names no other."""
    version = service_pb2.ModelMetadataRequest.FromString(asked).version
    versions = [version] if version else ["1", "2"]
    return bytes(service_pb2.ModelMetadataResponse(name="m", versions=versions).SerializeToString())


class Server(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, answer: Callable[[str, bytes], bytes]) -> None:
        self._answer = answer

    def service(self, details: Any) -> Any:
        async def called(asked: bytes, context: Any) -> bytes:
            if not (answer := self._answer(details.method, asked)):
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "it is not offered")
            return answer

        return grpc.unary_unary_rpc_method_handler(called)


def described(target: str, answer: Callable[[str, bytes], bytes]) -> Metadata:
    """Return what a connection to a server finds; in the target ``%d`` stands for its port."""

    async def main() -> Metadata:
        server = grpc.aio.server(handlers=[Server(answer)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection = connect([target % port])
        try:
            return await connection.metadata("m", 5.0)
        finally:
            await connection.close()
            await server.stop(None)

    return asyncio.run(main())


@pytest.mark.parametrize("label", ["", "?label=stable"])
def test_the_versions_of_a_tensorflow_serving(label: str) -> None:
    """It describes one at a time, and says of each whether it serves."""
    found = described("tfserving://127.0.0.1:%d/m" + label, tfserving)

    assert (found.versions, found.version) == (("1", "2"), "2")


def test_a_tensorflow_serving_that_does_not_say_which_versions_serve() -> None:
    """Like one that does not describe them: there is no answer."""

    def silent(method: str, asked: bytes) -> bytes:
        return b"" if method.endswith("GetModelStatus") else tfserving(method, asked)

    with pytest.raises(Lost, match="it is not offered"):
        described("tfserving://127.0.0.1:%d/m", silent)


@pytest.mark.parametrize(("pinned", "version"), [("", ""), ("?version=1", "1")])
def test_the_versions_of_a_triton(pinned: str, version: str) -> None:
    """Also where the target names one, for a request may name another one."""
    found = described("triton://127.0.0.1:%d/m" + pinned, triton)

    assert (found.versions, found.version) == (("1", "2"), version)


@pytest.mark.parametrize(
    ("session", "version", "ready"),
    [
        ("echo", "", True),
        ("echo", "1", True),
        ("echo", "2", False),
        ("echo", "x", False),
        ("slow", "1", False),
    ],
)
def test_whether_a_version_is_ready(session: str, version: str, ready: bool) -> None:
    """Over HTTP and gRPC; one that is not there is not."""
    with running(Echo(), FrontConfig(grpc=("127.0.0.1", 0), http=("127.0.0.1", 0))) as fronts:
        with closing(HTTPConnection(*(fronts.http_address or ("", 0)), timeout=60)) as client:
            client.request("GET", f"/v2/models/{session}{version and '/versions/' + version}/ready")
            answer = client.getresponse()
            assert (answer.status, json.load(answer)) == (200 if ready else 503, {"ready": ready})
        with grpc.insecure_channel("{}:{}".format(*(fronts.grpc_address or ()))) as channel:
            ask = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
            asked = service_pb2.ModelReadyRequest(name=session, version=version).SerializeToString()
            assert service_pb2.ModelReadyResponse.FromString(ask(asked, timeout=60)).ready == ready


class Versions(Echo):
    """Cannot say what its model expects, or describes a version that is not the newest."""

    def __init__(self, described: str | None) -> None:
        super().__init__()
        self._described = described

    async def metadata(self, session: str) -> Metadata:
        if self._described is None:
            raise Refused(Status.UNAVAILABLE, "no backend says so")
        return Metadata(session, ("1", "2"), "fake", (), (), self._described)


def asked(versions: Versions, ask: Callable[[Intake], Awaitable[Any]]) -> Any:
    """Return what an intake of a service answers."""

    async def main() -> Any:
        return await ask(Intake(versions, 5))

    return asyncio.run(main())


def test_a_version_of_which_nobody_knows_is_not_ready() -> None:
    """It may be there or not; without a version the session counts alone."""
    assert not asked(Versions(None), lambda one: one.serves("echo", "1"))
    assert asked(Versions(None), lambda one: one.serves("echo", ""))


@pytest.mark.parametrize(("described", "version"), [("1", 1), ("", 2)])
def test_a_description_says_of_which_version_it_is(described: str, version: int) -> None:
    """A target may name one that is not the newest."""
    question = message("GetModelMetadataRequest")()
    question.model_spec.name = "echo"
    sent = question.SerializeToString()

    def ask(intake: Intake) -> Awaitable[bytes]:
        return PredictionService(intake).methods()[METADATA](sent, None)  # type: ignore[arg-type]

    answer = message("GetModelMetadataResponse").FromString(asked(Versions(described), ask))
    assert answer.model_spec.version.value == version
