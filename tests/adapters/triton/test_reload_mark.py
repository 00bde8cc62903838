"""The mark that turns a change of instances into a reload."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from tritonclient.grpc import service_pb2

from tests.adapters.triton.test_deployed_anew import MODEL, Loading
from tests.adapters.triton.test_limits import TARGET
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.configuration import differ_in_instances_only, toggle_reload_mark

CONFIG = {"name": "m", "max_batch_size": 8, "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
TWO = {**CONFIG, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]}


def test_only_instances_are_recognised() -> None:
    """Nothing else may differ, and something must."""
    assert differ_in_instances_only(CONFIG, TWO)
    assert not differ_in_instances_only(CONFIG, CONFIG)
    assert not differ_in_instances_only(CONFIG, {**TWO, "max_batch_size": 4})


def test_toggling_twice_changes_nothing() -> None:
    """The mark comes and goes without a trace, whether there were other parameters or not."""
    other = {**CONFIG, "parameters": {"threads": {"string_value": "2"}}}

    for config in (CONFIG, other):
        assert toggle_reload_mark(config) != config
        assert toggle_reload_mark(toggle_reload_mark(config)) == config


@pytest.mark.parametrize(
    ("scheduler", "is_marked"),
    [
        ("dynamic_batching { }", True),
        ("sequence_batching { iterative_sequence: true }", True),
        ("sequence_batching { }", False),
    ],
)
def test_open_sequences_outlive_a_change(
    monkeypatch: pytest.MonkeyPatch, scheduler: str, is_marked: bool
) -> None:
    """Instances of a stateful model come and go in place, also when what was found is put back."""
    server = Loading(MODEL.format(8).replace("dynamic_batching { }", scheduler))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET, {"instances": (1.0, 2.0)})) as backend:
        backend.apply(backend.current().replace(instances=2))
        backend.restore()

        assert ["parameters" in config for config in server.loaded] == (
            [True, False] if is_marked else [False, False]
        )
        assert server.loaded[-1] == backend.original


class Counting(Loading):
    """A server that loads the model anew, and counts anew, where files were written since it was loaded."""

    count, written = 9, False

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        response = service_pb2.ModelStatisticsResponse()
        response.model_stats.add(name="mlp", version="1").inference_stats.success.count = self.count
        return response

    def load_model(self, model: str, config: str, **_: Any) -> None:
        super().load_model(model, config)
        self.count, self.written = (0 if self.written else self.count), False


def test_that_a_change_has_ended_open_sequences_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Triton loads a model anew in whose version folder something was written, whatever the change is."""
    server = Counting(MODEL.format(8).replace("dynamic_batching", "sequence_batching"))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET, {"instances": (1.0, 2.0)})) as backend:
        backend.apply(backend.current().replace(instances=2))
        assert caplog.messages == []
        server.written = True

        backend.apply(backend.current().replace(instances=1))

    assert ["ended the sequences that were open" in message for message in caplog.messages] == [True]
