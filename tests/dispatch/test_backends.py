"""What goes to a server, as its protocol has it; no server is needed to see it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.grpc.model_config_pb2 import (
    ModelConfig,
    ModelDynamicBatching,
    ModelSequenceBatching,
    ModelTransactionPolicy,
)

from tests.dispatch.fakes import request
from tuner.adapters.tfserving.schema import message
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.backends.triton import _set_parameter
from tuner.dispatch.request import Refused, Status


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, "bool_param"),
        (-(2**63), "int64_param"),
        (2**63 - 1, "int64_param"),
        (2**63, "uint64_param"),
        (2**64 - 1, "uint64_param"),
        (0.5, "double_param"),
        ("a", "string_param"),
    ],
)
def test_parameters_have_a_field_that_holds_them(value: bool | int | float | str, field: str) -> None:
    """A whole number has two: each takes half of those that the other does not."""
    parameter = service_pb2.InferParameter()

    _set_parameter(parameter, value)

    assert parameter.WhichOneof("parameter_choice") == field
    assert getattr(parameter, field) == value


@pytest.mark.parametrize("version", ["abc", "1.5", "-1", "9" * 30])
def test_tensorflow_serving_has_no_version_that_is_no_number(version: str) -> None:
    """KServe's clients name versions by texts."""

    async def main() -> None:
        connection = connect(["tfserving://127.0.0.1:1/m"])
        asked = request(version=version)
        with pytest.raises(Refused, match="has no version") as refused:
            await connection.infer("m", asked, asked.inputs)
        assert refused.value.status is Status.NOT_FOUND
        await connection.close()

    asyncio.run(main())


class Recorder(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Answers every call with nothing, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def service(self, _details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, asked: bytes, _context: Any) -> bytes:
        self.asked.append(asked)
        return b""


class Configured(Recorder):
    """Answers every call with the configuration of a model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self._said: bytes = service_pb2.ModelConfigResponse(config=config).SerializeToString()

    async def _answer(self, asked: bytes, context: Any) -> bytes:
        await super()._answer(asked, context)
        return self._said


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (ModelConfig(max_batch_size=8), ModelLimits(max_batch=8, batches_itself=False)),
        (
            ModelConfig(max_batch_size=8, dynamic_batching=ModelDynamicBatching()),
            ModelLimits(max_batch=8, batches_itself=True),
        ),
        (
            ModelConfig(model_transaction_policy=ModelTransactionPolicy(decoupled=True)),
            ModelLimits(max_batch=0, batches_itself=False, problem="is decoupled"),
        ),
        (
            ModelConfig(sequence_batching=ModelSequenceBatching()),
            ModelLimits(max_batch=0, batches_itself=False, problem="is stateful"),
        ),
    ],
)
def test_what_a_triton_says_of_a_model(config: ModelConfig, limits: ModelLimits) -> None:
    """One that answers several times, or whose requests belong together, cannot be served."""

    async def main() -> ModelLimits:
        server = grpc.aio.server(handlers=[Configured(config)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection = connect([f"triton://127.0.0.1:{port}/m"])
        found = await connection.limits("m", 10.0)
        await connection.close()
        await server.stop(None)
        return found

    found = asyncio.run(main())

    assert (found.max_batch, found.batches_itself) == (limits.max_batch, limits.batches_itself)
    assert limits.problem in found.problem
    assert bool(limits.problem) == bool(found.problem)


def test_each_model_of_tensorflow_serving_has_its_label_and_signature() -> None:
    """Also where several are on one server, and so on one connection."""

    async def main() -> None:
        recorder = Recorder()
        server = grpc.aio.server(handlers=[recorder])
        place = f"tfserving://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        connection = connect(
            [f"{place}/a?label=stable", f"{place}/b?label=canary&signature=rank", f"{place}/c"]
        )
        like = request()
        for model in "abc":
            await connection.infer(model, like, like.inputs)
        await connection.close()
        await server.stop(None)
        asked = [message("PredictRequest").FromString(one).model_spec for one in recorder.asked]
        assert [(one.name, one.version_label, one.signature_name) for one in asked] == [
            ("a", "stable", "serving_default"),
            ("b", "canary", "rank"),
            ("c", "", "serving_default"),
        ]

    asyncio.run(main())


def test_each_model_of_a_triton_has_its_version() -> None:
    """Whatever is asked of it, unless the request names another one."""

    async def main() -> None:
        recorder = Recorder()
        server = grpc.aio.server(handlers=[recorder])
        place = f"triton://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        connection = connect([f"{place}/a?version=1", f"{place}/b?version=2", f"{place}/c"])
        for model, named in (("a", ""), ("a", "3"), ("b", ""), ("c", ""), ("c", "3")):
            like = request(version=named)
            await connection.infer(model, like, like.inputs)
        sent = [service_pb2.ModelInferRequest.FromString(one) for one in recorder.asked]
        assert [one.model_version for one in sent] == ["1", "3", "2", "", "3"]
        recorder.asked.clear()
        await connection.ready("a", 10.0)
        await connection.limits("b", 10.0)
        await connection.metadata("a", 10.0)
        ready, config, metadata, every = recorder.asked
        assert service_pb2.ModelReadyRequest.FromString(ready).version == "1"
        assert service_pb2.ModelConfigRequest.FromString(config).version == "2"
        assert service_pb2.ModelMetadataRequest.FromString(metadata).version == "1"
        assert not service_pb2.ModelMetadataRequest.FromString(every).version
        await connection.close()
        await server.stop(None)

    asyncio.run(main())
