"""A model that is deployed anew while an adapter has it open."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from google.protobuf.json_format import ParseDict
from google.protobuf.text_format import MessageToString
from tritonclient.grpc import model_config_pb2

from tests.adapters.triton.test_limits import TARGET, Server, serving
from tuner.adapters.triton.backend import TritonBackend
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused
from tuner.knobs import Configuration

MODEL = 'name: "mlp" max_batch_size: {} dynamic_batching {{ }} instance_group [{{ count: 1 kind: KIND_CPU }}]'
THREADS = 'parameters [{ key: "threads" value: { string_value: "01" } }]'
CACHED = "response_cache { enable: true }"


class Loading(Server):
    """A server in explicit mode."""

    def __init__(self, text: str) -> None:
        super().__init__({"": text, "mlp": text})
        self.loaded: list[dict[str, Any]] = []

    def load_model(self, model: str, config: str, **_: Any) -> None:
        self.loaded.append(json.loads(config))
        self.configs[model] = MessageToString(ParseDict(self.loaded[-1], model_config_pb2.ModelConfig()))

    def is_model_ready(self, *_: Any, **__: Any) -> bool:
        return True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Loading:
    server = Loading(MODEL.format(8) + THREADS)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    return server


def opened() -> closing[TritonBackend]:
    return closing(TritonBackend(TARGET, {"parameters.threads": (1.0, 2.0)}))


TUNED = Configuration(
    {"max_batch_size": 4, "max_queue_delay": 0.002, "instances": 2, "parameters.threads": 2}
)


def test_its_new_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs now can be gone back to, and larger batches are refused."""
    server = serving(monkeypatch, mlp=MODEL.format(8))
    with closing(TritonBackend(TARGET)) as backend:
        server.configs["mlp"] = MODEL.format(32)
        found = backend.current()

        backend.check(found)

        assert found == Configuration(max_batch_size=32, max_queue_delay=0, instances=1)
        with pytest.raises(InvalidInput, match="not between 1 and 32"):
            backend.check(found.replace(max_batch_size=64))


@pytest.mark.parametrize(("limit", "now"), [(8, None), (32, 32), (0, 1)])
def test_that_its_limit_is_another_one_is_told(server: Loading, limit: int, now: int | None) -> None:
    """Once it was asked: the grids are those of the model that was opened. What a knob lowers is no limit."""
    with opened() as backend:
        backend.apply(TUNED)
        assert backend.deployed_anew == ""
        if now is not None:
            server.configs["mlp"] = MODEL.format(limit) + THREADS

        backend.current()

        told = f"the model was deployed anew with a max_batch_size of {now}, which was 8"
        assert backend.deployed_anew == ("" if now is None else told)


def test_what_was_found_is_not_put_back_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that the new model takes would be refused."""
    server = serving(monkeypatch, mlp=MODEL.format(8))
    with closing(TritonBackend(TARGET)) as backend:
        server.configs["mlp"] = MODEL.format(32)

        with pytest.raises(Refused, match="deployed anew"):
            backend.restore()


@pytest.mark.parametrize("instances", [1, 2])
def test_what_was_found_is_put_back_to_the_letter(
    server: Loading, caplog: pytest.LogCaptureFixture, instances: int
) -> None:
    """Where nobody else has changed the model; a number may be written in another way than ours."""
    with opened() as backend:
        found = backend.original
        backend.apply(TUNED.replace(instances=instances))

        backend.restore()

        assert server.loaded[-1] == found
        assert found["parameters"]["threads"]["string_value"] == "01"
    assert caplog.messages == []


@pytest.mark.parametrize("instances", [1, 2])
def test_only_the_knobs_of_a_model_with_the_same_limit_are_put_back(
    server: Loading, caplog: pytest.LogCaptureFixture, instances: int
) -> None:
    """All else stays as it was deployed, and that is said."""
    with opened() as backend:
        found = backend.original
        backend.apply(TUNED)
        new = MODEL.format(8).replace("count: 1", f"count: {instances}") + THREADS + CACHED
        server.configs["mlp"] = new.replace('"01"', '"02"')

        report = backend.restore()

        assert (
            report.configuration
            == backend.current()
            == TUNED.replace(max_batch_size=8, max_queue_delay=0, instances=1, **{"parameters.threads": 1})
        )
        now = backend._client.config()
    assert now == {
        **found,
        "parameters": {"threads": {"string_value": "1"}},
        "response_cache": {"enable": True},
    }
    assert [message for message in caplog.messages if "deployed anew: its knobs are put back" in message]


def test_a_model_that_is_deployed_anew_with_what_was_found_is_left_alone(server: Loading) -> None:
    """Nothing is loaded."""
    with opened() as backend:
        backend.apply(TUNED)
        server.configs["mlp"] = MODEL.format(8) + THREADS.replace("01", "1") + CACHED
        server.loaded.clear()

        assert not backend.restore().changed
    assert server.loaded == []


def test_a_model_that_is_deployed_anew_without_a_knob(server: Loading) -> None:
    """That is no mistake in what is asked of it: the model is another one."""
    with opened() as backend:
        backend.apply(TUNED)
        server.configs["mlp"] = MODEL.format(8)

        with pytest.raises(AdapterError, match=r"deployed anew without a knob.*parameters\.threads"):
            backend.current()
        with pytest.raises(AdapterError, match="deployed anew without a knob"):
            backend.restore()


@pytest.mark.parametrize("inside", [False, True])
def test_a_field_that_is_not_known_here_is_not_lost(
    server: Loading, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer Triton has more of them, and a change sends the whole configuration: then none is made."""
    with opened() as backend:
        assert backend.describe().writable
        asked = server.get_model_config

        def with_more(*args: Any, **more: Any) -> Any:
            answer = asked(*args, **more)
            place = answer.config.dynamic_batching if inside else answer.config
            place.MergeFromString(b"\xfa\x3f\x01x")  # field 1023
            return answer

        monkeypatch.setattr(server, "get_model_config", with_more)

        with pytest.raises(ReadOnly, match="fields that the installed tritonclient does not know"):
            backend.apply(TUNED)
        described = backend.describe()
        assert not described.writable
        assert "install the tritonclient of this Triton" in described.notes[0]
    assert server.loaded == []
