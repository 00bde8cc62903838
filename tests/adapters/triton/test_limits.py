"""What a Triton server may say at most, and models that it cannot have."""

from __future__ import annotations

from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from google.protobuf.text_format import Parse
from tritonclient.grpc import service_pb2

from tuner.adapters.connection import channel
from tuner.adapters.triton.client import LARGEST_CONFIG, TritonClient
from tuner.adapters.triton.configuration import model_limit, read_configuration
from tuner.adapters.triton.ensemble import MOST_MODELS
from tuner.adapters.triton.metrics import parse_metrics
from tuner.adapters.triton.opening import open_model
from tuner.adapters.triton.statistics import MOST_ENTRIES, read_statistics
from tuner.adapters.triton.target import parse_target
from tuner.errors import AdapterError, InvalidInput

TARGET = "triton://127.0.0.1:1/mlp?metrics=off"


class Server:
    """What a client of Triton sees of a server: nothing but configurations."""

    def __init__(self, configs: dict[str, str]) -> None:
        self.configs = configs
        self.asked: list[str] = []

    def get_server_metadata(self, **_: Any) -> Any:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        return service_pb2.ModelStatisticsResponse()

    def get_model_config(self, model: str, *_: Any, **__: Any) -> Any:
        self.asked.append(model)
        text = self.configs.get(model, self.configs[""])
        return Parse(f"config {{ {text.replace('NEXT', model + 'x')} }}", service_pb2.ModelConfigResponse())

    def get_model_repository_index(self, **_: Any) -> Any:
        return service_pb2.RepositoryIndexResponse()

    def unload_model(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


def serving(monkeypatch: pytest.MonkeyPatch, **configs: str) -> Server:
    server = Server({"": configs.get("mlp", ""), **configs})
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    return server


def test_an_ensemble_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no models, and is not asked for them without end."""
    server = serving(monkeypatch, mlp='ensemble_scheduling { step [{ model_name: "mlp" }, {}] }')

    with pytest.raises(AdapterError, match="is made of no models"):
        open_model(TARGET, {})
    assert len(server.asked) < 10


def test_an_ensemble_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is made of another one."""
    server = serving(monkeypatch, mlp='ensemble_scheduling { step [{ model_name: "NEXT" }] }')

    with pytest.raises(AdapterError, match=f"more than {MOST_MODELS} models"):
        open_model(TARGET, {})
    assert len(server.asked) < MOST_MODELS + 10


def test_a_configuration_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not translated."""
    serving(monkeypatch, mlp=f'name: "{"x" * LARGEST_CONFIG}"')

    with pytest.raises(AdapterError, match="bytes, more than 1000000"):
        TritonClient(parse_target(TARGET)).config()


def test_statistics_of_too_many_batch_sizes() -> None:
    """They are not added up."""
    response = service_pb2.ModelStatisticsResponse()
    stats = response.model_stats.add(version="1")
    stats.batch_stats.extend([service_pb2.InferBatchStatistics(batch_size=1)] * MOST_ENTRIES)

    with pytest.raises(AdapterError, match="65537 entries"):
        read_statistics(response)


def test_messages_are_bounded() -> None:
    """In both directions."""
    assert dict(channel.channel_options("far"))["grpc.max_receive_message_length"] == channel.LARGEST_MESSAGE


def test_numbers_of_five_thousand_digits() -> None:
    """Python reads no whole number of more than 4300."""
    digits = "1" * 5000
    config = {"max_batch_size": 8, "parameters": {"servetune_max_batch_size": {"string_value": digits}}}

    assert model_limit(config) == 8
    with pytest.raises(InvalidInput, match="is not a whole number"):
        read_configuration(config, ["parameters.servetune_max_batch_size"])
    page = f'nv_inference_request_summary_us{{model="m",version="{digits}",quantile="0.5"}} 9'
    assert parse_metrics(page, "m").quantiles == {0.5: 9e-6}
    with pytest.raises(AdapterError, match="cannot be read"):
        parse_metrics(f'nv_inference_pending_request_count{{model="m"}} 1{"0" * 400}', "m")
