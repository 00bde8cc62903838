"""The model configuration file, against a server that takes or refuses what is sent."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from tuner.adapters.tfserving.client import VersionStatus
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.versions.config_file import ConfigFile
from tuner.errors import AdapterError, InvalidInput, Refused

TEXT = """# the operator's own words
model_config_list {
  config { name: "other" base_path: "/other" }
  config {
    name: "mlp" base_path: "/mlp" model_platform: "tensorflow"
    model_version_policy { specific { versions: 1 versions: 2 } }
    version_labels { key: "stable" value: 1 }
    version_labels { key: "canary" value: 2 }
  }
}
"""
LABELLED = """base_path: "/bert"
    model_version_policy { specific { versions: 1 versions: 2 } } version_labels { key: "stable" value: 1 }"""


class Server:
    """Remembers what it was sent, and refuses on request."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.refuse = False

    def reload(self, config: Any, timeout: float) -> None:
        if self.refuse:
            raise Refused("no")
        self.sent.append(text_format.MessageToString(config))

    def versions(self) -> dict[int, VersionStatus]:
        return {}

    def standing(self, label: str) -> int | None:
        return dict(self.entry().version_labels).get(label) if self.sent else None

    def entry(self) -> Any:
        config = text_format.Parse(self.sent[-1], message("ModelServerConfig")())
        return config.model_config_list.config[1]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "models.config"
    file.write_text(TEXT)
    file.chmod(0o640)
    return file


@pytest.fixture
def steering(path: Path, server: Server) -> ConfigFile:
    return ConfigFile(path, "mlp", "stable", server, 1.0)


def test_a_label_goes_to_a_new_version(steering: ConfigFile, server: Server, path: Path) -> None:
    """Named first, then labelled; then ours that no longer serve are not named any more."""
    steering.admit(3)
    assert list(server.entry().model_version_policy.specific.versions) == [1, 2, 3]
    assert server.entry().version_labels["stable"] == 1

    steering.switch(3)
    assert server.entry().version_labels["stable"] == 3
    assert server.entry().version_labels["canary"] == 2

    steering.dismiss([3])
    assert list(server.entry().model_version_policy.specific.versions) == [1, 2]
    assert "other" in server.sent[-1]
    assert server.sent[-1] == path.read_text()


def test_restoring_brings_the_operators_words_back(steering: ConfigFile, server: Server, path: Path) -> None:
    """Comments and all, with the same rights; and nothing is left beside it."""
    steering.admit(3)
    steering.switch(3)

    steering.switch(1)
    steering.dismiss([3])
    steering.restore()

    assert path.read_text() == TEXT
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in path.parent.iterdir()] == ["models.config"]
    assert server.entry().version_labels["stable"] == 1


def test_what_somebody_has_changed_meanwhile_stays(steering: ConfigFile, server: Server, path: Path) -> None:
    """The operator's newer words are not overwritten by the older ones."""
    steering.admit(3)
    steering.switch(3)
    path.write_text(path.read_text().replace("/other", "/elsewhere"))

    steering.switch(1)
    steering.dismiss([3])
    steering.restore()

    assert "/elsewhere" in path.read_text()
    assert server.entry().version_labels["stable"] == 1
    assert [file.name for file in path.parent.iterdir()] == ["models.config"]


def test_what_is_refused_is_not_left_in_the_file(steering: ConfigFile, server: Server, path: Path) -> None:
    """A server that polls the file must not find there what it has refused."""
    server.refuse = True

    with pytest.raises(Refused):
        steering.admit(3)

    assert path.read_text() == TEXT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_the_server_could_not_read_any_more(
    steering: ConfigFile, server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not written, nor sent: the server would not start again."""
    os.chown(path, 54321, -1)
    monkeypatch.setattr(os, "fchown", lambda *_: None)  # who is not root cannot give it back

    with pytest.raises(Refused, match=r"chmod o\+r, or run as its owner; the old configuration still serves"):
        steering.admit(3)

    assert path.read_text() == TEXT
    assert server.sent == []


def test_revert(steering: ConfigFile, server: Server, path: Path) -> None:
    """What was done for a version that then failed is undone."""
    steering.admit(3)

    steering.revert()

    assert path.read_text() == TEXT
    assert list(server.entry().model_version_policy.specific.versions) == [1, 2]


def test_a_label_that_somebody_moves_meanwhile_stays(
    steering: ConfigFile, server: Server, path: Path
) -> None:
    """While a version of ours is loaded the operator gives the label to another: that is not overwritten."""
    steering.admit(3)
    path.write_text(path.read_text().replace('"stable"\n      value: 1', '"stable"\n      value: 2'))

    with pytest.raises(Refused, match="somebody has moved the label 'stable'"):
        steering.switch(3)
    steering.revert()

    assert server.entry().version_labels["stable"] == 2
    assert list(server.entry().model_version_policy.specific.versions) == [1, 2]


def test_a_version_that_somebody_takes_out_meanwhile_gets_no_label(
    steering: ConfigFile, server: Server, path: Path
) -> None:
    """The operator writes his file anew while ours is loaded, and the server would unload it."""
    steering.admit(3)
    path.write_text(TEXT)

    with pytest.raises(Refused, match="somebody has taken version 3 out of"):
        steering.switch(3)
    steering.revert()

    assert server.entry().version_labels["stable"] == 1
    assert path.read_text() == TEXT


def test_reverting_keeps_what_somebody_wrote_meanwhile(
    steering: ConfigFile, server: Server, path: Path
) -> None:
    """A version of the operator's and its label, in the same entry; ours is taken out again."""
    steering.admit(3)
    steering.switch(3)
    text = path.read_text().replace("versions: 3", "versions: 3 versions: 4")
    path.write_text(text.replace('"canary"\n      value: 2', '"canary"\n      value: 4'))

    steering.revert()

    assert list(server.entry().model_version_policy.specific.versions) == [1, 2, 4]
    assert server.entry().version_labels == {"stable": 1, "canary": 4}
    assert server.sent[-1] == path.read_text()


def test_the_lock_is_open_for_writing(
    steering: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS gives no lock on what is open for reading only."""
    flock = fcntl.flock

    def as_on_nfs(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)

    steering.admit(3)

    assert "versions: 3" in path.read_text()


def test_a_lock_that_another_user_has_made(
    steering: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be opened for writing; it is waited for all the same."""
    opened = os.open

    def refuse(name: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if str(name).endswith(".servetune-lock") and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(name, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)

    steering.admit(3)

    assert "versions: 3" in path.read_text()


def test_a_file_that_somebody_writes_right_now(steering: ConfigFile, path: Path) -> None:
    """An editor has emptied it: that passes, and is no mistake in the target."""
    path.write_text("")

    with pytest.raises(AdapterError, match="has 0 entries for the model 'mlp' now"):
        steering.admit(3)


def test_a_lock_that_cannot_be_removed(
    steering: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays, and keeps nobody out."""

    def refuse(self: Path, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)

    steering.admit(3)
    steering.switch(3)

    assert entry(path, "mlp").version_labels["stable"] == 3


def entry(path: Path, model: str) -> Any:
    """What the file says of a model."""
    config = text_format.Parse(path.read_text(), message("ModelServerConfig")())
    return next(entry for entry in config.model_config_list.config if entry.name == model)


@pytest.fixture
def two(path: Path, server: Server) -> tuple[ConfigFile, ConfigFile]:
    """Two models of one server, each tuned as a target of its own."""
    path.write_text(TEXT.replace('"other"', '"bert"').replace('base_path: "/other"', LABELLED))
    return ConfigFile(path, "mlp", "stable", server, 1.0), ConfigFile(path, "bert", "stable", server, 1.0)


def test_a_failed_version_undoes_no_other_models_change(
    two: tuple[ConfigFile, ConfigFile], path: Path
) -> None:
    """While it was loaded, the other model got a version, and requests go there."""
    mlp, bert = two
    mlp.admit(3)
    bert.admit(4)
    bert.switch(4)

    mlp.revert()

    assert list(entry(path, "mlp").model_version_policy.specific.versions) == [1, 2]
    assert list(entry(path, "bert").model_version_policy.specific.versions) == [1, 2, 4]
    assert entry(path, "bert").version_labels["stable"] == 4


def test_the_last_of_two_models_brings_the_operators_words_back(
    two: tuple[ConfigFile, ConfigFile], path: Path
) -> None:
    """The first cannot, because the file does not mean yet what the words mean."""
    words = path.read_text()
    for steering in two:
        steering.admit(3)
        steering.switch(3)

    for steering in two:
        steering.switch(1)
        steering.dismiss([3])
        steering.restore()

    assert path.read_text() == words
    assert [file.name for file in path.parent.iterdir()] == ["models.config"]


def test_two_models_change_the_file_one_after_the_other(
    two: tuple[ConfigFile, ConfigFile], server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one writes while the server decides on the other's is not overwritten when that is refused."""
    mlp, bert = two
    other = threading.Thread(target=bert.switch, args=[2])

    def refuse(config: Any, timeout: float) -> None:
        monkeypatch.undo()
        other.start()
        other.join(0.05)
        raise Refused("no")

    monkeypatch.setattr(server, "reload", refuse)
    with pytest.raises(Refused):
        mlp.switch(2)
    other.join(60.0)

    assert entry(path, "mlp").version_labels["stable"] == 1
    assert entry(path, "bert").version_labels["stable"] == 2


def test_a_model_without_labels(path: Path, server: Server) -> None:
    """Its versions are named all the same."""
    steering = ConfigFile(path, "mlp", "", server, 1.0)

    steering.admit(3)
    steering.switch(3)

    assert len(server.sent) == 1


@pytest.mark.parametrize(
    ("model", "label", "words"),
    [
        ("bert", "", "0 entries for the model 'bert'"),
        ("mlp", "best", "no label 'best'; it has: canary, stable"),
        ("other", "stable", "keeps only the newest version"),
    ],
)
def test_files_that_do_not_fit(path: Path, server: Server, model: str, label: str, words: str) -> None:
    """The file, and what is missing in it."""
    with pytest.raises(InvalidInput, match=words):
        ConfigFile(path, model, label, server, 1.0)


def test_unknown_fields_are_not_lost(path: Path, server: Server) -> None:
    """A file of a newer server is not touched rather than cut down to what we know."""
    path.write_text(TEXT.replace('model_platform: "tensorflow"', "brand_new: 1"))

    with pytest.raises(AdapterError, match="brand_new"):
        ConfigFile(path, "mlp", "", server, 1.0)
