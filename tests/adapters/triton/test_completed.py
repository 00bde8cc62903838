"""A Triton that completes configurations: some of its backends add dynamic batching where there is none."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc

from tests.adapters.triton.test_deployed_anew import MODEL, Loading
from tests.adapters.triton.test_limits import TARGET
from tests.adapters.triton.test_repository_file import Polling
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.change import AddsBatching, change
from tuner.adapters.triton.configuration import ModelConfig
from tuner.adapters.triton.repository_file import RepositoryFile
from tuner.errors import InvalidInput, Refused

BATCHES = "max_queue_delay_microseconds: 2000"


class Completing(Loading):
    """One with ONNX Runtime, say."""

    def load_model(self, model: str, config: str, **options: Any) -> None:
        super().load_model(model, config, **options)
        if "dynamic_batching" not in self.loaded[-1]:
            self.configs[model] += "dynamic_batching { preferred_batch_size: 8 }"


@pytest.mark.parametrize("delay", ["", BATCHES])
def test_a_batch_of_one_is_tried_once(monkeypatch: pytest.MonkeyPatch, delay: str) -> None:
    """It cannot be set, and another load would not change that."""
    server = Completing(MODEL.format(8).replace("{ }", f"{{ {delay} }}"))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET)) as backend:
        found = backend.current()
        one = found.replace(max_batch_size=1, max_queue_delay=0)

        with pytest.raises(Refused, match=r"adds dynamic batching by itself.*the old one"):
            backend.apply(one)
        assert backend.current() == found
        server.loaded.clear()
        with pytest.raises(InvalidInput, match=r"1 cannot be set; .*--disable-auto-complete-config"):
            backend.apply(one.replace(instances=2))
        assert server.loaded == []
        assert "adds dynamic batching" in backend.describe().notes[0]
        assert backend.apply(found.replace(max_batch_size=2)).changed


def test_a_server_that_was_started_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs without batching, so that may come back."""
    server = Completing(MODEL.format(8))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    with closing(TritonBackend(TARGET)) as backend:
        found = backend.current()
        one = found.replace(max_batch_size=1)
        with pytest.raises(Refused):
            backend.apply(one)

        server.configs["mlp"] = MODEL.format(8).replace("dynamic_batching { }", "")
        backend.apply(found)

        backend.check(one)


class CompletingPolling(Polling):
    """It reads a file, and completes what that says."""

    def config(self) -> ModelConfig:
        return {"dynamic_batching": {}, **super().config()}


def test_a_file_that_is_completed_is_put_back_at_once(tmp_path: Path) -> None:
    """The server has taken it, so that nobody waits any longer."""
    file = tmp_path / "mlp" / "config.pbtxt"
    file.parent.mkdir()
    file.write_text(text := f'name: "mlp"  max_batch_size: 8  # mine\ndynamic_batching {{ {BATCHES} }}\n')
    control = RepositoryFile(CompletingPolling(file), tmp_path, "mlp")

    with pytest.raises(AddsBatching, match="the old one was put back"):
        change(control, control.config(), {"name": "mlp", "max_batch_size": 8}, 0.0)

    assert file.read_text() == text


def test_what_runs_already_does_not_tell_whether_a_file_was_read(tmp_path: Path) -> None:
    """It looks as if it had been completed."""
    file = tmp_path / "mlp" / "config.pbtxt"
    file.parent.mkdir()
    file.write_text(text := 'name: "mlp"  max_batch_size: 8  dynamic_batching { }  # mine\n')
    control = RepositoryFile(CompletingPolling(file), tmp_path, "mlp")

    with pytest.raises(Refused, match="did not take"):
        change(control, control.config(), {"name": "mlp", "max_batch_size": 8}, 0.0)

    assert file.read_text() == text
