"""The text of a model configuration: whose it is, and what is left of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.adapters.tfserving.versions.test_config_file import TEXT, Server, entry, path, server, steering
from tuner.adapters.tfserving.versions.config_file import ConfigFile
from tuner.adapters.tfserving.versions.config_text import locked
from tuner.errors import Refused

__all__ = ["path", "server", "steering"]

NEWER = TEXT.replace("the operator's own words", "other words").replace('"/other"', '"/elsewhere"')


@pytest.fixture
def tuned(steering: ConfigFile) -> ConfigFile:
    """One that has given the label to a version of ours."""
    steering.admit(3)
    steering.switch(3)
    return steering


def test_what_the_operator_writes_meanwhile_comes_back_to_the_letter(tuned: ConfigFile, path: Path) -> None:
    """He has deployed the file anew, with other words; then a version of ours had the label again."""
    path.write_text(NEWER)
    tuned.admit(4)
    tuned.switch(4)
    assert entry(path, "mlp").version_labels["stable"] == 4

    tuned.switch(1)
    tuned.dismiss([3, 4])
    tuned.restore()

    assert path.read_text() == NEWER
    assert [file.name for file in path.parent.iterdir()] == ["models.config"]


def test_what_the_operator_writes_while_we_write_stays(
    steering: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our reading of the file and our writing; ours is refused."""
    fsync = os.fsync

    def then_write(descriptor: int) -> None:
        fsync(descriptor)
        if path.with_name(f"{path.name}.servetune-original").exists():
            path.write_text(NEWER)

    monkeypatch.setattr(os, "fsync", then_write)

    with pytest.raises(Refused, match="somebody else has changed it meanwhile, and that stays"):
        steering.admit(3)
    assert path.read_text() == NEWER


def test_what_the_operator_writes_while_the_server_refuses_stays(
    steering: ConfigFile, server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before us is not put back over that."""

    def refuse(*_: object) -> None:
        path.write_text(NEWER)
        raise Refused("no")

    monkeypatch.setattr(server, "reload", refuse)

    with pytest.raises(Refused, match="no"):
        steering.admit(3)
    assert path.read_text() == NEWER


def test_nothing_is_kept_beside_what_the_operator_has_written_last(tuned: ConfigFile, path: Path) -> None:
    """Even if he has changed only versions of another model, which otherwise are a target's of its own."""
    path.write_text(TEXT.replace('"/other"', '"/other" model_version_policy { specific { versions: 9 } }'))

    tuned.restore()

    assert [file.name for file in path.parent.iterdir()] == ["models.config"]


def test_what_a_killed_tuner_had_begun_to_write_is_swept_up(path: Path) -> None:
    """Where nobody else writes; files of others stay."""
    for name in (".models.config.7.9", ".models.config.servetune-original.7.9", ".models.config.swp"):
        path.with_name(name).touch()

    with locked(path):
        pass

    assert sorted(file.name for file in path.parent.iterdir()) == [".models.config.swp", "models.config"]


def test_a_file_with_line_ends_of_another_system(path: Path, server: Server) -> None:
    """It is changed like any other, and comes back to the letter."""
    path.write_bytes(text := TEXT.replace("\n", "\r\n").encode())
    steering = ConfigFile(path, "mlp", "stable", server, 1.0)
    steering.admit(3)
    steering.switch(3)

    steering.switch(1)
    steering.dismiss([3])
    steering.restore()

    assert path.read_bytes() == text
