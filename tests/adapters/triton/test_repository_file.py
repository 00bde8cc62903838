"""The file of a model of a Triton in poll mode, without a server that reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
