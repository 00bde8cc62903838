"""Tuners that are killed or fail halfway, and operators who are halfway through something themselves."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.tfserving.versions.test_knobs import (
    CONFIG,
    WANTED,
    Breaks,
    Server,
    base,
    config,
    deploy,
    keeping,
    labelled,
)
from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.config_file import ConfigFile
from tuner.adapters.tfserving.versions.folders import Marker, Versions
from tuner.adapters.tfserving.versions.knobs import VersionKnobs
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, Refused, Unreachable

__all__ = ["base", "config"]


class Killed(BaseException):
    """The tuner was killed."""


def test_a_label_that_is_being_moved_stays(base: Path, config: Path) -> None:
    """The operator has written the file, and the server has not read it yet: neither a change nor a restore
    brings his older model back."""
    knobs = labelled(base, config, "stable")
    knobs.write(WANTED)
    deploy(base, 3)
    text = config.read_text().replace('"stable"\n      value: 2', '"stable"\n      value: 3')
    config.write_text(text.replace("versions: 2", "versions: 2 versions: 3"))

    with pytest.raises(Refused, match="somebody has moved the label 'stable'"):
        knobs.write({**WANTED, "max_batch_size": 4.0})
    assert Versions(base).numbers() == [1, 2, 3]

    assert knobs.restore()
    assert knobs._server.serving() == 3
    assert Versions(base).numbers() == [1, 3]


def test_a_label_that_a_killed_tuner_wrote_and_did_not_send(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stand for a version that is removed, so that the server takes no configuration any more."""
    knobs = labelled(base, config, "stable")
    server = knobs._server
    steering = knobs._changer.steering
    monkeypatch.setattr(steering, "revert", lambda: None)
    monkeypatch.setattr(knobs._versions, "remove", lambda _: None)

    def killed(config: Any, timeout: float) -> None:
        if config.model_config_list.config[0].version_labels["stable"] == 2:
            raise Killed

    monkeypatch.setattr(server, "reload", killed)
    with pytest.raises(Killed):
        knobs.write(WANTED)
    assert steering.stands() == 2

    another = labelled(base, config, "stable")
    another.restore()

    assert config.read_text() == CONFIG
    assert [path.name for path in config.parent.iterdir()] == ["models.config"]


def test_what_a_killed_restore_left_goes_with_the_next(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our version was hidden already, and the file still names it."""
    knobs = labelled(base, config, "stable")
    knobs.write(WANTED)

    def killed(_: object) -> None:
        raise Killed

    monkeypatch.setattr(knobs._changer.steering, "dismiss", killed)
    with pytest.raises(Killed):
        knobs.restore()
    assert "versions: 2" in config.read_text()

    assert not labelled(base, config, "stable").restore()
    assert config.read_text() == CONFIG
    assert [path.name for path in config.parent.iterdir()] == ["models.config"]
    assert [path.name for path in base.iterdir()] == ["1"]


def test_the_lock_of_a_change_that_was_interrupted_goes_with_the_next_restore(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl-C, or a kill, while it waited for another target: nothing else was left."""

    def interrupt(_: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupt)
    with pytest.raises(KeyboardInterrupt):
        labelled(base, config, "stable").write(WANTED)
    monkeypatch.undo()
    assert [path.name for path in config.parent.iterdir()] != ["models.config"]

    labelled(base, config, "stable").restore()

    assert [path.name for path in config.parent.iterdir()] == ["models.config"]


def test_a_server_that_restarts_just_after_the_label_has_moved(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back with the label where it was, and finds the version that it had it for all the same."""
    server = Server(base, "stable")
    steering = ConfigFile(config, "mlp", "stable", server, 5.0)
    knobs = VersionKnobs(server, Versions(base), steering, 5.0)
    reload, serving = server.reload, server.serving

    def away(*_: object) -> None:
        raise Unreachable("it restarts")

    def moved_and_away(sent: Any, timeout: float) -> None:
        reload(sent, timeout)
        if sent.model_config_list.config[0].version_labels["stable"] == 2:
            monkeypatch.setattr(server, "reload", away)
            monkeypatch.setattr(server, "serving", away)

    monkeypatch.setattr(server, "reload", moved_and_away)
    with pytest.raises(AdapterError, match="version 2 may still serve"):
        knobs.write(WANTED)

    assert config.read_text() == CONFIG
    assert Versions(base).numbers() == [1, 2]
    monkeypatch.setattr(server, "reload", reload)  # it did not restart, but was out of reach
    monkeypatch.setattr(server, "serving", serving)
    knobs.write(WANTED)
    assert Versions(base).marker(3).origin == 1
    assert server.serving() == 3


def test_a_change_that_came_about_has_not_failed(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Although an older version of ours could not be removed: the next change does that."""
    knobs = labelled(base, config, "stable")

    def refuse() -> None:
        raise AdapterError("version 2 cannot be removed")

    monkeypatch.setattr(knobs._changer, "prune", refuse)

    knobs.write(WANTED)

    assert knobs.read(WANTED) == WANTED
    assert "removed with the next change: version 2 cannot be removed" in caplog.text


def test_a_version_that_is_named_after_ours(base: Path, config: Path) -> None:
    """The operator puts it there, we take the next number, and then he names it: ours has an older model."""
    config.write_text("\n".join(line for line in CONFIG.splitlines() if "version_labels" not in line))
    server = Breaks(base, broken=set(), unseen={2, 4})
    knobs = VersionKnobs(server, Versions(base), ConfigFile(config, "mlp", "", server, 5.0), 5.0)
    deploy(base, 2)
    (base / "2" / "saved_model.pb").write_text("new")
    knobs.write(WANTED)
    config.write_text(config.read_text().replace("versions: 1", "versions: 1 versions: 2"))
    server._unseen.clear()

    knobs.write({**WANTED, "max_batch_size": 4.0})
    assert Versions(base).marker(4).origin == 2

    deploy(base, 5)
    server._unseen.add(5)
    knobs.restore()
    assert server.serving() == 2
    assert "versions: 5" not in config.read_text()


@pytest.mark.parametrize("theirs", [2, 1])
def test_a_deployment_just_before_ours_is_there(
    base: Path, monkeypatch: pytest.MonkeyPatch, theirs: int
) -> None:
    """It has the number of one that was removed; or what ours was made from is removed. Ours goes again."""
    versions, server = Versions(base), Breaks(base, broken=set(), unseen=set())
    server.ended = {2: VersionStatus(VersionState.END, "")}
    knobs = VersionKnobs(server, versions, Steering(), 0.1)
    publish = versions.publish

    def deploy_and_publish(*args: Any) -> None:
        if theirs == 2:
            deploy(base, 2)
        publish(*args)
        if theirs == 1:
            (base / "1").rename(base / "gone")

    monkeypatch.setattr(versions, "publish", deploy_and_publish)

    with pytest.raises(
        Refused, match=r"version 2 is being deployed|version 1 was removed meanwhile, and the"
    ):
        knobs.write(WANTED)
    assert versions.numbers() == ([1, 2] if theirs == 2 else [])


def test_the_last_of_two_labels_brings_the_operators_words_back(base: Path, config: Path) -> None:
    """Each is tuned as a target of its own; the first to be restored leaves the words to the other."""
    server = Server(base, "canary")
    steering = ConfigFile(config, "mlp", "canary", server, 5.0)
    canary = VersionKnobs(server, Versions(base), steering, 5.0)
    canary.write(WANTED)
    stable = labelled(base, config, "stable")
    stable.write(WANTED)
    server.labels["canary"] = 2

    canary.restore()
    assert stable.restore()

    assert config.read_text() == CONFIG
    assert [path.name for path in config.parent.iterdir()] == ["models.config"]


def test_a_deployment_during_a_change_pushes_no_label_out(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps four: canary's 1, the operator's 2 and ours; an idle one makes room for his."""
    knobs, server = keeping(base, config, 4)
    knobs.write(WANTED)
    config.write_text(config.read_text().replace("value: 3", "value: 2"))
    server.labels["stable"] = 2
    publish = knobs._versions.publish

    def deploy_and_publish(source: int, *args: Any) -> None:
        publish(source, *args)
        deploy(base, 5)

    monkeypatch.setattr(knobs._versions, "publish", deploy_and_publish)

    knobs.write(WANTED)

    assert server.lost == set()
    assert Versions(base).numbers() == [1, 2, 4, 5]


class Watched(Server):
    """Remembers labels that stood for a version that was gone."""

    def versions(self) -> dict[int, VersionStatus]:
        self.lost = {*getattr(self, "lost", ()), *self.labels.values()} - set(self._folder.numbers())
        return super().versions()


@pytest.mark.parametrize("does", ["write", "restore"])
def test_a_label_that_the_operator_has_moved_in_the_file_only(base: Path, config: Path, does: str) -> None:
    """The server still has it for ours: the tuner of another label has it move before it removes that one."""
    config.write_text(CONFIG.replace("specific { versions: 1 }", "latest { num_versions: 4 }"))
    server, versions = Watched(base, "stable"), Versions(base)
    stable = VersionKnobs(server, versions, ConfigFile(config, "mlp", "stable", server, 5.0), 5.0)
    for size in (2.0, 4.0):
        stable.write({**WANTED, "max_batch_size": size})
    config.write_text(config.read_text().replace("value: 3", "value: 1"))
    server._label = "canary"
    canary = VersionKnobs(server, versions, ConfigFile(config, "mlp", "canary", server, 5.0), 5.0)

    canary.write(WANTED) if does == "write" else canary.restore()

    assert 3 not in versions.numbers()
    assert server.lost == set()


def test_a_label_that_moves_to_a_version_that_ours_have_pushed_out(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a change: the server refuses the file, until an idle one of ours has made room."""
    knobs, server = keeping(base, config, 3)
    config.write_text(config.read_text().replace('"canary" value: 1', '"canary" value: 2'))
    server.labels["canary"] = 2
    knobs.write(WANTED)
    keep = knobs._changer.steering.keep

    def keep_and_move() -> None:
        keep()
        config.write_text(config.read_text().replace("value: 2", "value: 1"))

    monkeypatch.setattr(knobs._changer.steering, "keep", keep_and_move)
    knobs.write({**WANTED, "max_batch_size": 4.0})

    assert Versions(base).numbers() == [1, 2, 4]
    knobs._changer.steering.send()
    assert server.labels == {"stable": 4, "canary": 1}
    assert server.lost == set()


def test_labels_whose_file_the_server_refuses(base: Path, config: Path) -> None:
    """The operator has written his file anew, and a version of it is pushed out: the other label moves, and
    what it stood for makes room."""
    stable, server = keeping(base, config, 4)
    text = config.read_text()
    stable.write(WANTED)
    server._label = "canary"
    canary = VersionKnobs(server, Versions(base), ConfigFile(config, "mlp", "canary", server, 5.0), 5.0)
    canary.write(WANTED)
    deploy(base, 5)
    config.write_text(text)

    canary.restore()

    assert server.labels == {"stable": 2, "canary": 1}
    assert server.lost == set()
    assert Versions(base).numbers() == [1, 2, 5]
    assert config.read_text() == text


def test_a_model_that_the_operator_withdraws_during_a_restore(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His older one serves, and ours, which has the files of what he withdrew, does not come back."""
    deploy(base, 2)
    versions = Versions(base)
    knobs = VersionKnobs(Server(base), versions, Steering(), 0.1)
    knobs.write(WANTED)
    hide = versions.hide

    def hide_and_withdraw(number: int) -> Path:
        shutil.rmtree(base / "2")
        return hide(number)

    monkeypatch.setattr(versions, "hide", hide_and_withdraw)

    assert knobs.restore()
    assert versions.numbers() == [1]


def test_a_forgotten_label_stays_while_the_server_refuses_another(base: Path, config: Path) -> None:
    """Its version is gone; taken away once, it could not be given again, and no file would be taken."""
    knobs, server = keeping(base, config, 4)
    server.labels["old"] = 8
    text = config.read_text().replace('"canary" value: 1 }', '"canary" value: 9 }')
    config.write_text(
        text.replace("version_labels", 'version_labels { key: "old" value: 8 } version_labels', 1)
    )

    with pytest.raises(Refused, match="version 9 is not available"):
        knobs._changer.steering.send()

    assert server.labels == {"stable": 2, "canary": 1, "old": 8}


def test_what_another_label_stands_for_in_the_server_stays(base: Path, config: Path) -> None:
    """Although the file has it for a version that is not loaded, which the server refuses."""
    stable, server = keeping(base, config, 4)
    stable.write(WANTED)
    config.write_text(config.read_text().replace("value: 3", "value: 9"))
    server._label = "canary"
    canary = VersionKnobs(server, Versions(base), ConfigFile(config, "mlp", "canary", server, 5.0), 5.0)

    canary.restore()

    assert server.labels["stable"] == 3
    assert Versions(base).numbers() == [1, 2, 3]


def test_a_label_that_the_operator_moves_during_a_restore(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not brought back to his older version."""
    knobs = labelled(base, config, "stable")
    knobs.write(WANTED)
    deploy(base, 3)
    find = knobs._operators_version

    def then_move(present: Marker) -> int:
        found = find(present)
        text = config.read_text().replace('"stable"\n      value: 2', '"stable"\n      value: 3')
        config.write_text(text.replace("versions: 2", "versions: 2 versions: 3"))
        return found

    monkeypatch.setattr(knobs, "_operators_version", then_move)

    with pytest.raises(Refused, match="somebody has moved the label 'stable'"):
        knobs.restore()
    assert "value: 3" in config.read_text()

    monkeypatch.undo()
    knobs.restore()
    assert knobs._server.serving() == 3
    assert Versions(base).numbers() == [1, 3]


@pytest.mark.parametrize("label", ["canary", "stable"])
def test_a_label_that_moves_to_an_older_version_just_before_ours_is_there(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """The server keeps two, and with ours it would unload that one: ours goes before it has looked."""
    knobs, server = keeping(base, config, 2)
    config.write_text(config.read_text().replace('"canary" value: 1', '"canary" value: 2'))
    server.labels["canary"] = 2
    publish = knobs._versions.publish

    def move_and_publish(*args: Any) -> None:
        config.write_text(config.read_text().replace(f'"{label}" value: 2', f'"{label}" value: 1'))
        server.labels[label] = 1
        publish(*args)

    monkeypatch.setattr(knobs._versions, "publish", move_and_publish)

    with pytest.raises(Refused, match="unload version 1, which a label stands for"):
        knobs.write(WANTED)
    assert server.lost == set()
    assert Versions(base).numbers() == [1, 2]


def test_a_refused_change_does_not_undo_the_one_before(
    base: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although older versions of ours could not be removed after that."""
    knobs = labelled(base, config, "stable")

    def refuse(*_: object) -> None:
        raise Refused("no")

    monkeypatch.setattr(knobs._changer, "prune", refuse)
    knobs.write(WANTED)
    monkeypatch.setattr(knobs, "_check_again", refuse)

    with pytest.raises(Refused, match="no"):
        knobs.write({**WANTED, "max_batch_size": 4.0})

    assert knobs._server.serving() == 2
    assert knobs.read(WANTED) == WANTED
