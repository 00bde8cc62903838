"""Ten thousand lives of an adapter whose server answers over gRPC with damaged messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from random import Random
from typing import Any

import grpc
import pytest
import tritonclient.grpc as tritongrpc
from google.protobuf.message import DecodeError
from google.protobuf.text_format import Parse
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.adapters.tfserving.test_metrics import PAGE
from tests.fuzz.mutation import damaged_bytes, rounds
from tuner.adapters.backend import Backend
from tuner.adapters.live import backend as live
from tuner.adapters.metrics.page import MetricsPage
from tuner.adapters.tfserving import client as tfserving
from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.schema import message
from tuner.adapters.triton.opening import open_model
from tuner.errors import TunerError

CONFIGS = [
    """name: "mlp" max_batch_size: 16 backend: "python"
    dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 500 }
    instance_group [{ name: "a" kind: KIND_CPU count: 2 }]
    parameters { key: "servetune_max_batch_size" value { string_value: "32" } }
    parameters { key: "threads" value { string_value: "4" } }""",
    """name: "mlp" max_batch_size: 4
    instance_group [{ count: 1 kind: KIND_GPU gpus: [0] }, { name: "b" count: 2 kind: KIND_CPU }]""",
    """name: "mlp" max_batch_size: 8 ensemble_scheduling { step [
    { model_name: "mlp" model_version: -1 }, { model_name: "other" model_version: -1 } ] }""",
]
STATISTICS = """model_stats { name: "mlp" version: "1" inference_count: 24 execution_count: 3
  inference_stats { success { count: 10 ns: 100000 } fail { count: 2 } queue { count: 10 ns: 300 }
    compute_input { count: 3 ns: 10 } compute_infer { count: 3 ns: 2000 } compute_output { count: 3 ns: 30 } }
  batch_stats { batch_size: 8 compute_input { count: 3 ns: 5 } compute_infer { count: 3 ns: 60 } }
  batch_stats { batch_size: 4 compute_infer { count: 1 ns: 90 } } }"""


def prepared(text: str, kind: Any) -> bytes:
    return bytes(Parse(text, kind()).SerializeToString())


CONFIG_BYTES = [prepared(f"config {{ {text} }}", service_pb2.ModelConfigResponse) for text in CONFIGS]
STATISTICS_BYTES = prepared(STATISTICS, service_pb2.ModelStatisticsResponse)
READY = prepared('models { name: "mlp" state: "READY" }', service_pb2.RepositoryIndexResponse)
SERVER = prepared('name: "triton" version: "2.51.0"', service_pb2.ServerMetadataResponse)


EXTREME: dict[Any, tuple[Any, ...]] = {
    int: (0, 1, -1, 2, 65537, 2**31 - 1, -(2**31), 2**63 - 1, 2**64 - 1),
    str: ("", "x", "9" * 5000, "-1", "٣", "²", "\x00\n", "mlp", "KIND_GPU"),
    bool: (True, False),
}


def damaged(random: Random, kind: Any, data: bytes) -> Any:
    """Return a message with a few fields that are extreme, gone or doubled; seldom one that is no message."""
    if random.random() < 0.1:
        return kind.FromString(damaged_bytes(random, data))
    found = kind.FromString(data)
    for _ in range(random.randint(1, 3)):
        at = found
        while True:
            fields = at.ListFields()
            if not fields:
                break
            field, value = random.choice(fields)
            if not field.is_repeated and field.message_type is not None and random.random() < 0.9:
                at = value
            elif (
                field.is_repeated and len(value) and field.message_type is not None and random.random() < 0.8
            ):
                at = value[next(iter(value))] if isinstance(value, MutableMapping) else random.choice(value)
            else:
                _change(random, at, field)
                break
    return found


def _change(random: Random, at: Any, field: Any) -> None:
    """Set a field to something extreme, clear it, or double what it holds."""
    kind = random.randrange(3)
    value = getattr(at, field.name)
    if kind == 0:
        at.ClearField(field.name)
    elif field.is_repeated:
        if not isinstance(value, MutableMapping):
            value.extend(list(value) * random.choice((1, 1, 20)))
    elif type(value) in EXTREME:
        with contextlib.suppress(ValueError):  # it does not fit
            setattr(at, field.name, random.choice(EXTREME[type(value)]))


class Triton:
    """Answers as a client of Triton does when the server's messages are damaged."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._config = random.choice(CONFIG_BYTES)

    def _answer(self, kind: Any, data: bytes) -> Any:
        try:
            return damaged(self._random, kind, data) if self._random.random() < 0.4 else kind.FromString(data)
        except DecodeError:
            raise InferenceServerException("cannot be read", status="StatusCode.INTERNAL") from None

    def get_server_metadata(self, **_: Any) -> Any:
        return self._answer(service_pb2.ServerMetadataResponse, SERVER)

    def get_model_repository_index(self, **_: Any) -> Any:
        return self._answer(service_pb2.RepositoryIndexResponse, READY)

    def is_model_ready(self, *_: Any, **__: Any) -> bool:
        return self._random.random() < 0.9

    def get_model_config(self, model: str, *_: Any, **__: Any) -> Any:
        data = self._config if model == "mlp" else self._random.choice(CONFIG_BYTES)
        return self._answer(service_pb2.ModelConfigResponse, data)

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        return self._answer(service_pb2.ModelStatisticsResponse, STATISTICS_BYTES)

    def load_model(self, *_: Any, **__: Any) -> None: ...

    def unload_model(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


def lived(backend: Backend, random: Random) -> None:
    """Use a backend as the daemon does, and close it."""
    try:
        backend.describe()
        backend.current()
        assert backend.counters().requests >= 0
        backend.apply(backend.space.decode(random.randrange(backend.space.size)))
        backend.profile()
        assert backend.counters().requests >= 0
    finally:
        backend.close()


@pytest.fixture(autouse=True, scope="module")
def far() -> Iterator[None]:
    """The server is on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "local_cores", lambda *_: None)
        patch.setattr(live, "listening_processes", lambda *_: ())
        yield


@rounds
def test_triton(random: Random) -> bool:
    """Whatever it says, nothing but our own errors; a model, an ensemble, an ensemble of itself."""
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(TunerError):
        patch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: Triton(random))
        grids = random.choice([{}, {}, {"parameters.threads": (1.0, 2.0)}, {"instances.b": (1.0, 2.0)}])
        lived(open_model("triton://far/mlp?metrics=off", grids), random)
        return True
    return False


STATUS = prepared(
    """model_version_status { version: 2 state: 30 status { error_code: 0 error_message: "" } }
    model_version_status { version: 1 state: 50 status { error_code: 5 error_message: "gone" } }""",
    message("GetModelStatusResponse"),
)
METADATA = prepared('model_spec { name: "mlp" version { value: 2 } }', message("GetModelMetadataResponse"))


class Failed(grpc.RpcError):  # type: ignore[misc]
    """What gRPC raises for a message that cannot be read."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INTERNAL

    def details(self) -> str:
        return "Exception deserializing response!"


class Channel:
    """Answers as a gRPC channel does when the server's messages are damaged."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def unary_unary(self, method: str, **_: Any) -> Any:
        name = method.rpartition("/")[2]
        data = METADATA if name == "GetModelMetadata" else STATUS

        def call(*_: Any, **__: Any) -> Any:
            try:
                return damaged(self._random, message(f"{name}Response"), data)
            except DecodeError:
                raise Failed from None

        return call

    def close(self) -> None: ...


@rounds
def test_tfserving(random: Random) -> bool:
    """Versions, states and labels that cannot be."""
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(TunerError):
        patch.setattr(tfserving, "open_channel", lambda *_: Channel(random))
        patch.setattr(MetricsPage, "fetch", lambda *_: EMPTY)
        backend = TFServingBackend(f"tfserving://far/mlp{random.choice(['', '?label=stable'])}")
        try:
            backend.describe()
            backend.current()
            backend.counters()
        finally:
            backend.close()
        return True
    return False


EMPTY = "\n".join(line for line in PAGE.splitlines() if "request_count" in line)
