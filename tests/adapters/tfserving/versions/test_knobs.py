"""The knobs of a version folder, against a server that serves what the folder has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.config_file import ConfigFile
from tuner.adapters.tfserving.versions.folders import Versions
from tuner.adapters.tfserving.versions.knobs import VersionKnobs
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import Refused, TimedOut

WANTED = {"max_batch_size": 8.0, "batch_timeout": 0.001}
CONFIG = """# the operator's own words
model_config_list {
  config {
    name: "mlp"
    model_version_policy { specific { versions: 1 } }
    version_labels { key: "stable" value: 1 }
    version_labels { key: "canary" value: 1 }
  }
}
"""


class Server:
    """Has every version of a folder; the one with a label serves, else the newest.

    Args:
        base: The folder.
        label: Of the version that serves; it moves when a configuration comes.
    """

    def __init__(self, base: Path, label: str = "") -> None:
        self._folder = Versions(base)
        self._label = label
        self.labels = {"stable": 1, "canary": 1}

    def serving(self) -> int:
        return self.labels[self._label] if self._label else max(self._folder.numbers())

    def versions(self) -> dict[int, VersionStatus]:
        return {n: VersionStatus(VersionState.AVAILABLE, "") for n in self._folder.numbers()}

    def standing(self, label: str) -> int | None:
        number = self.labels.get(label)
        return number if number in self._folder.numbers() else None

    def reload(self, config: Any, timeout: float) -> None:
        self.labels = dict(config.model_config_list.config[0].version_labels)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    deploy(tmp_path, 1)
    return tmp_path


def deploy(base: Path, number: int) -> None:
    """Add a version of the operator's."""
    (base / str(number)).mkdir()
    (base / str(number) / "saved_model.pb").touch()


@pytest.mark.parametrize("limit", [2.0, 3.0, 8.0])
def test_a_limit_with_fewer_halves_than_allowed_sizes_runs_what_was_asked_for(
    base: Path, limit: float
) -> None:
    """Else it would seem to run something else, and be changed again and again."""
    versions, wanted = Versions(base), {**WANTED, "max_batch_size": limit, "allowed_batch_sizes": 6.0}
    knobs = VersionKnobs(Server(base), versions, Steering(), 5.0)

    knobs.write(wanted)

    assert knobs.read(wanted) == wanted
    assert VersionKnobs(Server(base), versions, Steering(), 5.0).read(wanted) == wanted
    (base / "2" / "batching_params.pbtxt").write_text(f"max_batch_size {{ value: {limit:g} }}")
    assert knobs.read(wanted)["allowed_batch_sizes"] == 0  # somebody else has written that


def test_the_limit_is_that_of_the_version_that_serves(base: Path) -> None:
    """Also if the operator deploys one with other parameters, and of those that we make from it."""
    knobs = VersionKnobs(Server(base), Versions(base), Steering(), 5.0)
    assert (knobs.limit, knobs.splits) == (8192, False)
    deploy(base, 2)
    splitting = "max_batch_size { value: 64 } enable_large_batch_splitting { value: true }"
    (base / "2" / "batching_params.pbtxt").write_text(splitting)

    knobs.read(WANTED)

    assert (knobs.limit, knobs.splits) == (64, True)
    knobs.write(WANTED)
    assert knobs.read(WANTED) == WANTED
    assert (knobs.limit, knobs.splits) == (64, True)


def test_where_nothing_can_be_changed_there_is_nothing_to_restore(base: Path) -> None:
    """Such as a label without the file that moves it."""
    knobs = VersionKnobs(Server(base), Versions(base), None, 5.0)

    assert not knobs.restore()


def test_restoring_removes_ours_under_a_newer_version(base: Path) -> None:
    """Else they would serve again when the operator withdraws that."""
    versions = Versions(base)
    knobs = VersionKnobs(Server(base), versions, Steering(), 5.0)
    knobs.write(WANTED)
    deploy(base, 3)

    assert not knobs.restore()
    assert versions.numbers() == [1, 3]


def test_a_restore_that_fails_leaves_ours_serving(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's version is not loaded in time; ours is there again, else nothing would serve."""
    versions, server = Versions(base), Server(base)
    knobs = VersionKnobs(server, versions, Steering(), 0.1)
    knobs.write(WANTED)
    monkeypatch.setattr(server, "serving", lambda: 2)

    with pytest.raises(TimedOut, match="version 2 still serves"):
        knobs.restore()

    assert versions.numbers() == [1, 2]


@pytest.mark.parametrize("state", [None, VersionState.LOADING])
def test_a_version_that_the_server_does_not_look_at_is_told_from_one_that_loads_slowly(
    base: Path, state: VersionState | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model configuration names versions, or it serves from another folder; both can be corrected."""
    versions, server = Versions(base), Server(base)
    old, new = server.versions(), {} if state is None else {2: VersionStatus(state, "")}
    monkeypatch.setattr(server, "versions", lambda: old | (new if 2 in versions.numbers() else {}))
    monkeypatch.setattr(server, "serving", lambda: 1)
    knobs = VersionKnobs(server, versions, Steering(), 0.1)

    with pytest.raises(Refused, match="version 2 was not available") as found:
        knobs.write(WANTED)

    assert ("base_path=" in str(found.value) and "config=" in str(found.value)) == (state is None)
    assert versions.numbers() == [1]


@pytest.mark.parametrize("state", [None, VersionState.START, VersionState.LOADING])
def test_a_change_waits_for_a_deployment(
    base: Path, state: VersionState | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the operator's version would not be the newest any more when it is loaded, and never serve."""
    versions, server = Versions(base), Server(base)
    knobs = VersionKnobs(server, versions, Steering(), 5.0)
    knobs.write(WANTED)
    statuses = server.versions()
    deploy(base, 3)
    monkeypatch.setattr(server, "serving", lambda: 2)
    coming = {} if state is None else {3: VersionStatus(state, "")}
    monkeypatch.setattr(server, "versions", lambda: statuses | coming)

    with pytest.raises(Refused, match="version 3 is being deployed"):
        knobs.write({**WANTED, "max_batch_size": 4.0})

    assert versions.numbers() == [1, 2, 3]


class Breaks(Server):
    """Never loads some versions.

    Args:
        base: The folder.
        broken: They end with an error.
        unseen: They are not known to it.
    """

    def __init__(self, base: Path, broken: set[int], unseen: set[int]) -> None:
        super().__init__(base)
        self.ended: dict[int, VersionStatus] = {}
        self._broken = broken
        self._unseen = unseen

    def serving(self) -> int:
        return max(set(self._folder.numbers()) - self._broken - self._unseen - self.ended.keys())

    def versions(self) -> dict[int, VersionStatus]:
        ended = {n: VersionStatus(VersionState.END, "broken") for n in self._broken}
        known = super().versions() | ended | self.ended
        return {n: status for n, status in known.items() if n not in self._unseen}


def test_a_broken_deployment_does_not_end_tuning(base: Path) -> None:
    """Neither does one that the server left out, because a newer one was there when it looked."""
    deploy(base, 2)
    deploy(base, 3)
    versions = Versions(base)
    knobs = VersionKnobs(Breaks(base, broken={3}, unseen={2}), versions, Steering(), 5.0)

    knobs.write(WANTED)

    assert versions.numbers() == [1, 2, 3, 4]


@pytest.fixture
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("etc") / "models.config"
    path.write_text(CONFIG)
    return path


def labelled(base: Path, config: Path, label: str) -> VersionKnobs:
    """The knobs of the version that a label stands for."""
    server = Server(base, label)
    return VersionKnobs(server, Versions(base), ConfigFile(config, "mlp", label, server, 5.0), 5.0)


def test_restoring_no_longer_names_ours_under_a_newer_label(base: Path, config: Path) -> None:
    """The operator's configuration stays, and no copy of the earlier one is left beside it."""
    knobs = labelled(base, config, "stable")
    knobs.write(WANTED)
    deploy(base, 3)
    steering = knobs._changer.steering
    steering.admit(3)
    steering.switch(3)

    assert not knobs.restore()
    assert Versions(base).numbers() == [1, 3]
    assert "versions: 2" not in config.read_text()
    assert [path.name for path in config.parent.iterdir()] == ["models.config"]


def test_what_another_tuner_gave_its_label_stays(base: Path, config: Path) -> None:
    """Whatever becomes of this one's label."""
    canary = labelled(base, config, "canary")
    canary.write(WANTED)
    stable = labelled(base, config, "stable")

    assert not stable.restore()
    for size in (2.0, 4.0, 8.0, 16.0):
        stable.write({**WANTED, "max_batch_size": size})
    assert stable.restore()

    assert Versions(base).numbers() == [1, 2]
    assert canary.read(WANTED) == WANTED


def test_a_version_that_no_one_names_is_no_deployment(base: Path, config: Path) -> None:
    """The server does not load it, so nothing overtakes it."""
    server = Breaks(base, broken=set(), unseen={3})
    config.write_text("\n".join(line for line in CONFIG.splitlines() if "version_labels" not in line))
    knobs = VersionKnobs(server, Versions(base), ConfigFile(config, "mlp", "", server, 5.0), 5.0)
    deploy(base, 3)

    knobs.write(WANTED)

    assert Versions(base).numbers() == [1, 3, 4]


def test_a_label_moves_whatever_is_deployed(base: Path, config: Path) -> None:
    """Requests go where it stands; a newer version takes no place away."""
    config.write_text(CONFIG.replace("specific { versions: 1 }", "all { }"))
    knobs = labelled(base, config, "stable")
    deploy(base, 3)

    knobs.write(WANTED)

    assert Versions(base).numbers() == [1, 3, 4]


class Keeps(Server):
    """Keeps the newest versions loaded, and remembers which versions with a label it had to unload.

    Args:
        base: The folder.
        label: Of the version that serves.
        places: How many it keeps.
    """

    def __init__(self, base: Path, label: str, places: int) -> None:
        super().__init__(base, label)
        self.labels = {"stable": 2, "canary": 1}
        self.places = places
        self.lost: set[int] = set()

    def versions(self) -> dict[int, VersionStatus]:
        loaded = self._folder.numbers()[-self.places :]
        self.lost |= set(self.labels.values()) - set(loaded)
        return {n: VersionStatus(VersionState.AVAILABLE, "") for n in loaded}

    def reload(self, config: Any, timeout: float) -> None:
        labels = dict(config.model_config_list.config[0].version_labels)
        moved = {number for label, number in labels.items() if self.labels.get(label) != number}
        if unloaded := moved - set(self._folder.numbers()[-self.places :]):
            raise Refused(f"version {min(unloaded)} is not available")
        super().reload(config, timeout)


def keeping(base: Path, config: Path, places: int) -> tuple[VersionKnobs, Keeps]:
    """The knobs of the label ``stable``, for version 2, where ``canary`` stands for 1."""
    deploy(base, 2)
    text = CONFIG.replace("specific { versions: 1 }", f"latest {{ num_versions: {places} }}")
    config.write_text(text.replace('"stable" value: 1', '"stable" value: 2'))
    server = Keeps(base, "stable", places)
    return VersionKnobs(server, Versions(base), ConfigFile(config, "mlp", "stable", server, 5.0), 5.0), server


def test_ours_push_no_version_of_another_label_out(base: Path, config: Path) -> None:
    """The server keeps four: canary's 1, the operator's 2, ours that serves, and the next."""
    knobs, server = keeping(base, config, 4)

    for size in (2.0, 4.0, 8.0, 16.0):
        knobs.write({**WANTED, "max_batch_size": size})

    assert server.lost == set()
    assert Versions(base).numbers() == [1, 2, 6]


def test_idle_versions_of_ours_make_room(base: Path, config: Path) -> None:
    """Such as one that the operator has taken the label from."""
    knobs, server = keeping(base, config, 3)
    knobs.write(WANTED)
    config.write_text(config.read_text().replace("value: 3", "value: 2"))
    server.labels["stable"] = 2

    knobs.write(WANTED)

    assert server.lost == set()
    assert Versions(base).numbers() == [1, 2, 4]


def test_a_policy_without_room_for_a_change(base: Path, config: Path) -> None:
    """It is refused before anything is written, and the number that is needed is named."""
    knobs, server = keeping(base, config, 2)

    with pytest.raises(Refused, match=r"unload version 1, which a label stands for; set num_versions to 3"):
        knobs.write(WANTED)

    assert Versions(base).numbers() == [1, 2]
    assert server.lost == set()


def test_a_deployment_between_two_looks_at_the_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes just after the folder was looked at for newer versions: it is not overtaken."""
    versions, server = Versions(base), Breaks(base, broken=set(), unseen={2})
    knobs = VersionKnobs(server, versions, Steering(), 0.1)
    check = knobs._check_deployments

    def then_deploy(present: int) -> None:
        check(present)
        deploy(base, 2)

    monkeypatch.setattr(knobs, "_check_deployments", then_deploy)

    with pytest.raises(Refused, match="somebody else has made it"):
        knobs.write(WANTED)
    assert versions.numbers() == [1, 2]


def test_a_deployment_that_has_the_number_of_an_earlier_one(base: Path) -> None:
    """The server still says of that one that it has ended; the new one will be loaded."""
    server = Breaks(base, broken=set(), unseen=set())
    knobs = VersionKnobs(server, Versions(base), Steering(), 5.0)
    deploy(base, 2)
    server.ended = {2: VersionStatus(VersionState.END, "")}

    with pytest.raises(Refused, match="version 2 is being deployed"):
        knobs.write(WANTED)


def test_a_model_that_the_operator_has_withdrawn(base: Path) -> None:
    """He removed his newest version; ours has the same files, and the next one goes on from the older."""
    deploy(base, 2)
    (base / "2" / "saved_model.pb").write_text("bad")
    knobs = VersionKnobs(Server(base), Versions(base), Steering(), 5.0)
    knobs.write(WANTED)
    shutil.rmtree(base / "2")

    knobs.write({**WANTED, "max_batch_size": 4.0})

    assert (base / "4" / "saved_model.pb").samefile(base / "1" / "saved_model.pb")
    assert Versions(base).marker(4).origin == 1


def test_a_model_that_the_operator_has_withdrawn_before_a_restore(base: Path) -> None:
    """What was found is a version of ours with the same files: its parameters come back, but not they."""
    deploy(base, 2)
    VersionKnobs(Server(base), Versions(base), Steering(), 5.0).write(WANTED)
    knobs = VersionKnobs(Server(base), Versions(base), Steering(), 5.0)
    shutil.rmtree(base / "2")

    assert knobs.restore()
    assert Versions(base).marker(4).origin == 1
    assert knobs.read(WANTED) == WANTED
    assert not knobs.restore()


def test_a_model_that_the_operator_has_cleaned_up(base: Path) -> None:
    """No older one is left: ours go on."""
    knobs = VersionKnobs(Server(base), Versions(base), Steering(), 5.0)
    knobs.write(WANTED)
    shutil.rmtree(base / "1")

    knobs.write({**WANTED, "max_batch_size": 4.0})

    assert Versions(base).marker(3).origin == 1


def test_restoring_beside_a_broken_deployment(base: Path) -> None:
    """The newest version that the server can load serves again."""
    server = Breaks(base, broken={3}, unseen=set())
    knobs = VersionKnobs(server, Versions(base), Steering(), 5.0)
    knobs.write(WANTED)
    deploy(base, 3)

    assert knobs.restore()
    assert server.serving() == 1
