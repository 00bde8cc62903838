"""The file of a model of a Triton in poll mode, without a server that reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.text_format import Parse
from tritonclient.grpc import model_config_pb2

from tuner.adapters.triton.configuration import ModelConfig
from tuner.adapters.triton.repository_file import RepositoryFile
from tuner.errors import Refused

TEXT = 'name: "mlp"  # mine\n'


class Server:
    def config(self) -> ModelConfig:
        return {"name": "mlp"}

    def ready(self) -> bool:
        return True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_the_server_could_not_read_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not written: the server would not load the model again."""
    file = tmp_path / "mlp" / "config.pbtxt"
    file.parent.mkdir()
    file.write_text(TEXT)
    os.chown(file, 54321, -1)
    file.chmod(0o640)
    control = RepositoryFile(Server(), tmp_path, "mlp")
    monkeypatch.setattr(os, "fchown", lambda *_: None)  # who is not root cannot give it back

    with pytest.raises(Refused, match=r"chmod o\+r, or run as its owner; the old configuration still serves"):
        control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    assert file.read_text() == TEXT


class Polling(Server):
    """A server that reads the file whenever it is asked."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def config(self) -> ModelConfig:
        read = Parse(self.file.read_text(), model_config_pb2.ModelConfig())
        return MessageToDict(read, preserving_proto_field_name=True)


def test_a_file_that_the_operator_has_written_since_comes_back(tmp_path: Path) -> None:
    """And not the one that was found: it belongs to what was deployed before."""
    file = tmp_path / "mlp" / "config.pbtxt"
    file.parent.mkdir()
    file.write_text(TEXT)
    server = Polling(file)
    control = RepositoryFile(server, tmp_path, "mlp")
    control.load({"name": "mlp", "max_batch_size": 4}, 0.0)
    file.write_text(text := 'name: "mlp"  # theirs\nresponse_cache { enable: true }\n')
    theirs = server.config()

    control.load({**theirs, "max_batch_size": 4}, 0.0)
    changed = file.read_text()
    control.load(theirs, 0.0)

    assert "theirs" not in changed
    assert file.read_text() == text
    control.load({"name": "mlp"}, 0.0)
    assert "mine" not in file.read_text()
