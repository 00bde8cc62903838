"""The file of a model of a Triton in poll mode, without a server that reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.text_format import Parse
from tritonclient.grpc import model_config_pb2

from tuner.adapters.triton import repository_file as module
from tuner.adapters.triton.change import change
from tuner.adapters.triton.configuration import ModelConfig
from tuner.adapters.triton.repository_file import RepositoryFile
from tuner.errors import AdapterError, Refused, StorageError
from tuner.files.storage import write_for_server

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

    with pytest.raises(Refused, match=r"chmod o\+r, or run as its owner"):
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
    theirs = control.config()

    control.load({**theirs, "max_batch_size": 4}, 0.0)
    changed = file.read_text()
    control.load(theirs, 0.0)

    assert "theirs" not in changed
    assert file.read_text() == text
    control.load({"name": "mlp"}, 0.0)
    assert "mine" not in file.read_text()


@pytest.fixture
def polling(tmp_path: Path) -> Polling:
    file = tmp_path / "mlp" / "config.pbtxt"
    file.parent.mkdir()
    file.write_text(TEXT)
    return Polling(file)


class Late(Polling):
    """Has not read the file since it was opened."""

    def config(self) -> ModelConfig:
        return {"name": "mlp"}


THEIRS = 'name: "mlp"  # theirs\nmax_batch_size: 2\n'


def test_replicas_that_share_a_folder(polling: Polling) -> None:
    """What one of them writes for itself is for all; the message says what to do instead."""
    first = RepositoryFile(polling, polling.file.parents[1], "mlp")
    other = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")
    wanted: ModelConfig = {"name": "mlp", "max_batch_size": 4}
    first.load(wanted, 5.0)

    with pytest.raises(
        Refused, match=r"another replica with the same folder; .* repository=/models-a,/models-b"
    ):
        other.load(wanted, 5.0)


def test_a_file_that_the_server_has_not_taken_yet_stays(polling: Polling) -> None:
    """The operator's deployment would be lost for good."""
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")
    polling.file.write_text(THEIRS)

    with pytest.raises(Refused, match=r"somebody has changed .* does not run that yet"):
        control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    assert polling.file.read_text() == THEIRS


def test_a_file_that_is_written_while_the_server_takes_ours_stays(polling: Polling) -> None:
    """The older one is not put back over it when ours is given up."""

    class Overwritten(Late):
        def config(self) -> ModelConfig:
            if "max_batch_size: 4" in self.file.read_text():
                self.file.write_text(THEIRS)
            return super().config()

    control = RepositoryFile(Overwritten(polling.file), polling.file.parents[1], "mlp")

    with pytest.raises(Refused, match="did not take"):
        control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    assert polling.file.read_text() == THEIRS


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the disk be full once a file has been written."""

    def once(path: Path, text: str, **options: str) -> None:
        write_for_server(path, text, **options)
        monkeypatch.setattr(module, "write_for_server", full)

    def full(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(module, "write_for_server", once)


def test_a_disk_that_is_full_when_the_file_is_put_back(
    polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the adapter, which says both."""
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")

    fill_disk(monkeypatch)

    with pytest.raises(AdapterError, match=r"did not take .* could not be put back: no space left"):
        control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    monkeypatch.undo()
    control.put_back()
    assert polling.file.read_text() == TEXT


def test_other_words_of_the_operators_for_the_same(polling: Polling) -> None:
    """The server runs what it ran: there is nothing to wait for."""
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")
    polling.file.write_text(TEXT.replace("mine", "still mine"))
    control.config()

    control.load({"name": "mlp", "max_batch_size": 4}, 0.0)
    control.load({"name": "mlp"}, 0.0)

    assert "still mine" in polling.file.read_text()


@pytest.fixture
def a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AMPLE", -1.0)


@pytest.mark.usefixtures("a_minute_later")
def test_a_file_that_the_server_has_refused_for_a_minute(polling: Polling) -> None:
    """It does not keep the model from being tuned, and comes back in the end."""
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")
    polling.file.write_text(THEIRS)

    control.config()
    control.load({"name": "mlp"}, 0.0)

    assert polling.file.read_text() == THEIRS


def test_a_file_that_the_operator_is_just_writing(polling: Polling) -> None:
    """It is empty for a moment, and says nothing yet; a file put in its place would take his words away."""
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")

    with polling.file.open("w") as file:
        with pytest.raises(Refused, match="does not run that yet"):
            change(control, control.config(), {"name": "mlp", "max_batch_size": 4}, 0.0)
        file.write(THEIRS)

    assert polling.file.read_text() == THEIRS


def test_a_file_that_is_copied_with_its_time(polling: Polling) -> None:
    """It was written long ago, but has just come, and the server does not run it yet."""
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")
    polling.file.write_text(THEIRS)
    os.utime(polling.file, (0, 0))

    with pytest.raises(Refused, match="does not run that yet"):
        change(control, control.config(), {"name": "mlp", "max_batch_size": 4}, 0.0)

    assert polling.file.read_text() == THEIRS


@pytest.mark.usefixtures("a_minute_later")
def test_a_file_that_is_removed_and_says_what_the_server_makes_up_itself(polling: Polling) -> None:
    """After a minute the model is tuned on; nothing is left of the file in the end."""

    class MakesUp(Polling):
        def config(self) -> ModelConfig:
            return super().config() if self.file.exists() else {"name": "mlp"}

    control = RepositoryFile(MakesUp(polling.file), polling.file.parents[1], "mlp")
    polling.file.unlink()

    change(control, control.config(), {"name": "mlp", "max_batch_size": 4}, 0.0)
    change(control, control.config(), {"name": "mlp"}, 0.0)

    assert not polling.file.exists()


def test_a_text_of_a_killed_tuner_that_the_server_has_not_taken(polling: Polling) -> None:
    """It is not taken for the operator's: what the server runs is written with the next change."""
    polling.file.write_text(f"{module.OURS}name: 'mlp' max_batch_size: 4")
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")

    control.put_back()

    assert "max_batch_size" not in polling.file.read_text()


def test_two_deployments_one_after_the_other(polling: Polling) -> None:
    """The server has taken the first and not yet the second, which stays."""
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")
    polling.file.write_text(THEIRS)
    first = polling.config()
    polling.file.write_text(second := THEIRS.replace("2", "3"))
    polling.config = lambda: first  # type: ignore[method-assign]

    assert control.config() == first
    with pytest.raises(Refused, match="does not run that yet"):
        control.load({**first, "max_batch_size": 1}, 0.0)

    assert polling.file.read_text() == second


def test_a_file_that_was_written_just_before_it_was_opened(polling: Polling) -> None:
    """The server does not run it yet: it is no text for what runs, and stays."""
    polling.file.write_text(THEIRS)
    control = RepositoryFile(Late(polling.file), polling.file.parents[1], "mlp")

    with pytest.raises(Refused, match="does not run that yet"):
        control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    assert polling.file.read_text() == THEIRS


def test_a_file_with_line_ends_of_another_system(polling: Polling) -> None:
    """It is changed like any other, and comes back to the letter."""
    polling.file.write_bytes(text := b'name: "mlp"  # mine\r\nmax_batch_size: 2\r\n')
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")

    control.load({"name": "mlp", "max_batch_size": 4}, 0.0)
    control.load({"name": "mlp", "max_batch_size": 2}, 0.0)

    assert polling.file.read_bytes() == text


@pytest.fixture
def left(polling: Polling) -> RepositoryFile:
    """The control of a model whose last tuner was killed before the server had taken what it wrote."""
    was = polling.config()
    polling.file.write_text(f"{module.OURS}name: 'mlp' max_batch_size: 4")
    taken, polling.config = polling.config, lambda: was  # type: ignore[method-assign]
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")
    polling.config = taken  # type: ignore[method-assign]
    return control


def test_a_text_of_a_killed_tuner_that_the_server_takes_late(left: RepositoryFile, polling: Polling) -> None:
    """It is what runs, and the next change goes on from it."""
    change(left, left.config(), {"name": "mlp", "max_batch_size": 8}, 0.0)

    assert "max_batch_size: 8" in polling.file.read_text()


def test_nothing_is_put_back_over_a_text_that_the_server_has_taken_late(
    left: RepositoryFile, polling: Polling
) -> None:
    """It would be another change, which nobody has asked for."""
    left.put_back()

    assert "max_batch_size: 4" in polling.file.read_text()


def test_going_back_from_a_text_that_the_server_has_taken_late(
    left: RepositoryFile, polling: Polling
) -> None:
    """What ran before the killed tuner's change runs again."""
    change(left, left.config(), {"name": "mlp"}, 0.0)

    assert polling.config() == {"name": "mlp"}


def test_a_late_text_of_ours_is_not_taken_for_the_operators(
    polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full when it should have been put back; then the server took it."""
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")

    monkeypatch.setattr(polling, "config", lambda: {"name": "mlp"})
    fill_disk(monkeypatch)
    with pytest.raises(AdapterError, match="could not be put back"):
        control.load({"name": "mlp", "max_batch_size": 4}, 0.0)
    monkeypatch.undo()
    change(control, control.config(), {"name": "mlp"}, 0.0)

    assert polling.file.read_text() == TEXT


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.usefixtures("a_minute_later")
def test_a_copy_that_a_killed_tuner_has_begun(polling: Polling, others: int) -> None:
    """It goes with the next change; what has another name stays."""
    names = [".config.pbtxt.4711.140", ".config.pbtxt.swp"]
    polling.file.with_name(names[others]).write_text("name:")
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")

    control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    assert len(list(polling.file.parent.iterdir())) == 1 + others


def test_a_copy_that_another_tuner_is_writing(polling: Polling) -> None:
    """It stays: the other could not go on."""
    copy = polling.file.with_name(".config.pbtxt.4711.140")
    copy.write_text("name:")
    control = RepositoryFile(polling, polling.file.parents[1], "mlp")

    control.load({"name": "mlp", "max_batch_size": 4}, 0.0)

    assert copy.exists()
