"""The versions of a model: each load of a Triton looks for new ones."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from tritonclient.grpc import service_pb2

from tests.adapters.triton.test_deployed_anew import MODEL, Loading
from tests.adapters.triton.test_limits import TARGET
from tuner.adapters.triton.backend import TritonBackend


class Versioned(Loading):
    """A server with version folders, and statistics of those that it has loaded."""

    folders: tuple[str, ...] = ("1",)
    loaded_versions: tuple[str, ...] = ("1",)

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        response = service_pb2.ModelStatisticsResponse()
        for version in self.loaded_versions:
            response.model_stats.add(name="mlp", version=version)
        return response

    def load_model(self, model: str, config: str, **_: Any) -> None:
        super().load_model(model, config)
        self.loaded_versions = self.folders


def test_a_version_that_was_only_copied(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator learns that it serves now."""
    server = Versioned(MODEL.format(8))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET)) as backend:
        running = backend.current()
        backend.apply(running.replace(max_batch_size=2))
        assert caplog.messages == []
        server.folders = ("1", "2")

        backend.apply(running)

    assert ["has put version 2 into service" in message for message in caplog.messages] == [True]
