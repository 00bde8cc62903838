"""A server that refuses a batch as one does that ends: a model, or a queue that is full, may do so, too."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2

from tests.dispatch.calls import outcome, reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, Bench, bench, request
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.connection import Doubtful
from tuner.dispatch.backends.server import PROBE_UP
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor


class Refusing:
    """Has a fake server refuse each batch of a model that holds some bytes.

    Args:
        found: The bench that it is of.
        address: Of the server.
        model: Of the batches.
        holds: What they hold.
    """

    def __init__(self, found: Bench, address: str, model: str = "m", holds: bytes = b"") -> None:
        self.asked = 0
        self._model = model
        server = found.servers[address]
        infer = server.infer

        async def refuse(model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
            if model != self._model or not any(holds in tensor.content for tensor in inputs):
                return await infer(model, like, inputs)
            self.asked += 1
            await asyncio.sleep(2 * MS)
            raise Doubtful(Status.UNAVAILABLE, f"{address}: Exceeds maximum queue size")

        server.infer = refuse  # type: ignore[method-assign]


def test_a_model_that_is_not_available() -> None:
    """Its requests are refused with its words; those of another session on the server go on."""

    async def main() -> None:
        found = bench({"name": "m", "slo_ms": 500.0}, {"name": "n", "slo_ms": 500.0}, servers=1)
        async with found as dispatcher:
            refusing = Refusing(found, "a:1")
            calls = [reply_to(dispatcher, request(session=name)) for _ in range(20) for name in "mn"]
            answers = await asyncio.gather(*[outcome(one) for one in calls])
            assert [type(one) for one in answers[1::2]] == [Reply] * 20
            for refused in answers[::2]:
                assert isinstance(refused, Refused)
                assert (refused.status, refused.reason) == (
                    Status.UNAVAILABLE,
                    "a:1: Exceeds maximum queue size",
                )
            assert refusing.asked >= 1
            await asyncio.sleep(2 * PROBE_UP)
        assert found.counts.switches == [("a:1", True)]

    run(main())


def test_a_request_for_which_a_model_is_not_available() -> None:
    """The others of its batch are answered."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, servers=1)
        async with found as dispatcher:
            await reply_to(dispatcher, request())  # now its kind can share batches
            await asyncio.sleep(1 * MS)
            Refusing(found, "a:1", holds=b"poison!!")
            payloads = [b"12345678"] * 5 + [b"poison!!"] + [b"12345678"] * 5
            answers = await asyncio.gather(*[outcome(reply_to(dispatcher, request(one))) for one in payloads])
            assert [type(one) for one in answers] == [Reply] * 5 + [Refused] + [Reply] * 5
        assert found.counts.switches == [("a:1", True)]

    run(main())


@pytest.mark.parametrize("together", [1, 12])
def test_a_server_that_ends(together: int) -> None:
    """It says the same, and its probe fails: nothing is refused, and it is taken out."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, policy="eager")
        async with found as dispatcher:
            for _ in range(4):
                await reply_to(dispatcher, request())
            refusing = [Refusing(found, "a:1")]
            found.servers["a:1"].unloaded = True
            calls = [reply_to(dispatcher, request()) for _ in range(together)]
            answers = await asyncio.gather(*[outcome(one) for one in calls])
            assert [type(one) for one in answers] == [Reply] * together
            assert [one.asked for one in refusing] == [1]
            assert ("a:1", False) in found.counts.switches

    run(main())


class Server(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """A Triton whose model ``m`` says that it is not available, and whose other models echo."""

    def service(self, details: Any) -> Any:
        methods = {"ModelReady": self._ready, "ModelConfig": self._config, "ModelInfer": self._infer}
        return grpc.unary_unary_rpc_method_handler(methods[details.method.rpartition("/")[2]])

    async def _ready(self, _asked: bytes, _context: Any) -> bytes:
        return bytes(service_pb2.ModelReadyResponse(ready=True).SerializeToString())

    async def _config(self, _asked: bytes, _context: Any) -> bytes:
        answer = service_pb2.ModelConfigResponse()
        answer.config.max_batch_size = 8
        return bytes(answer.SerializeToString())

    async def _infer(self, asked: bytes, context: Any) -> bytes:
        question = service_pb2.ModelInferRequest.FromString(asked)
        if question.model_name == "m":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "its licence server is away")
        answer = service_pb2.ModelInferResponse(raw_output_contents=question.raw_input_contents)
        for one in question.inputs:
            answer.outputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
        return bytes(answer.SerializeToString())


def test_a_triton_with_a_model_that_is_not_available() -> None:
    """As before, over gRPC."""

    async def main() -> None:
        server = grpc.aio.server(handlers=[Server()])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        sessions = [
            {"name": name, "slo_ms": 60_000.0, "backends": [f"triton://127.0.0.1:{port}/{name}"]}
            for name in "mn"
        ]
        found = bench(*sessions, policy="eager")
        dispatcher = Dispatcher(found.config, connect, found.counts, found.warnings.append)
        await dispatcher.start(60.0)
        try:
            calls = [reply_to(dispatcher, request(session=name)) for _ in range(10) for name in "mn"]
            answers = await asyncio.gather(*[outcome(one) for one in calls])
        finally:
            await dispatcher.close()
            await server.stop(None)
        assert [type(one) for one in answers[1::2]] == [Reply] * 10
        refused = {(one.status, one.reason) for one in answers[::2] if isinstance(one, Refused)}
        assert refused == {(Status.UNAVAILABLE, f"127.0.0.1:{port}: its licence server is away")}
        assert found.counts.switches == [(f"127.0.0.1:{port}", True)]

    asyncio.run(main())
