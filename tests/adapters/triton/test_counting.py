"""What a Triton counts while it loads a model is counted, too: the old instances serve meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc

from tests.adapters.triton.pretended import TEXT, PretendedTriton
from tuner.adapters.triton.backend import TritonBackend


class SlowlyLoading(PretendedTriton):
    """Serves 1000 requests while it loads a model, as slowly as somebody reads them."""

    read_count = 0

    def asked(self, what: str) -> None:
        """Answer at once."""

    def get_inference_statistics(self, *args: Any, **more: Any) -> Any:
        self.read_count = self.count
        return super().get_inference_statistics(*args, **more)

    def load_model(self, model: str, config: str, **more: Any) -> None:
        latest = time.monotonic() + 30.0
        for _ in range(5):
            self.count += 200
            while self.read_count != self.count:
                assert time.monotonic() < latest, "nobody reads"
                time.sleep(0.01)
        super().load_model(model, config, **more)


def test_requests_that_are_served_while_a_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would look as if they had waited for the change."""
    file = tmp_path / "config.pbtxt"
    file.write_text(TEXT.format(word=0, limit=8, batching="dynamic_batching { }", count=1))
    server = SlowlyLoading(file, polls=False)
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    backend = TritonBackend("triton://127.0.0.1:1/mlp?metrics=off", settle=0.0)

    report = backend.apply(backend.current().replace(instances=2.0))

    assert report.changed
    assert backend.counters().requests == 1000
    assert backend.counters().restarts == 1
