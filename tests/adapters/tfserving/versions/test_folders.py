"""Version folders: made whole, marked, confined."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from tuner.adapters.tfserving.batching import FILE
from tuner.adapters.tfserving.versions import folders as module
from tuner.adapters.tfserving.versions.folders import MARKER, Marker, Versions
from tuner.errors import AdapterError, Refused


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "3" / "variables").mkdir(parents=True)
    (folder / "3" / "saved_model.pb").write_text("graph")
    (folder / "3" / "variables" / "data").write_text("weights")
    (folder / "3" / FILE).write_text("max_batch_size { value: 4 }")
    (folder / "notes").mkdir()
    return folder


def marker(number: int = 4, origin: int = 3) -> Marker:
    return Marker(number=number, origin=origin, batching=None, configuration={"max_batch_size": 8.0})


def test_a_version_has_the_same_files_and_its_own_parameters(base: Path) -> None:
    """Links, not copies; the source's parameters are not written through."""
    Versions(base).publish(3, marker(), "max_batch_size { value: 8 }")

    assert (base / "4" / "variables" / "data").samefile(base / "3" / "variables" / "data")
    assert (base / "4" / FILE).read_text() == "max_batch_size { value: 8 }"
    assert (base / "3" / FILE).read_text() == "max_batch_size { value: 4 }"
    assert Versions(base).marker(4) == marker()
    assert Versions(base).numbers() == [3, 4]
    assert not list(base.glob(".*"))


def test_a_version_without_parameters(base: Path) -> None:
    """The source's are left out."""
    Versions(base).publish(3, marker(), None)

    assert not (base / "4" / FILE).exists()
    assert Versions(base).batching(4) is None


def test_it_appears_only_when_it_is_whole(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If anything fails on the way, nothing with a number is there, and nothing is left."""

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_write", full)

    with pytest.raises(Refused, match=r"No space left.*old configuration still serves"):
        Versions(base).publish(3, marker(), "")

    assert sorted(path.name for path in base.iterdir()) == ["3", "notes"]


def test_somebody_was_quicker(base: Path) -> None:
    """A version that has come in the meantime is not touched, not even an empty folder."""
    (base / "4").mkdir()

    with pytest.raises(Refused, match="somebody else"):
        Versions(base).publish(3, marker(), "")

    assert list((base / "4").iterdir()) == []


@pytest.mark.parametrize("number", [0, 2**63])
def test_impossible_numbers(base: Path, number: int) -> None:
    """Versions are positive numbers of 63 bits."""
    with pytest.raises(Refused):
        Versions(base).publish(3, marker(number), "")


def test_file_systems_without_links(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are copied there."""

    def no_links(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOTSUP, "no links")

    monkeypatch.setattr(os, "link", no_links)

    Versions(base).publish(3, marker(), None)

    assert (base / "4" / "saved_model.pb").read_text() == "graph"


def test_links_inside_stay_links(base: Path, tmp_path: Path) -> None:
    """What the operator linked to is neither read nor copied."""
    (base / "3" / "assets").symlink_to(tmp_path / "elsewhere")

    Versions(base).publish(3, marker(), None)

    assert (base / "4" / "assets").readlink() == tmp_path / "elsewhere"


def test_only_ours_are_removed(base: Path) -> None:
    """A version without a marker stays, whatever is asked; so does one with another's marker."""
    versions = Versions(base)
    versions.publish(3, marker(), None)
    (base / "5").mkdir()
    (base / "5" / MARKER).write_text((base / "4" / MARKER).read_text())  # copied by somebody: says 4

    versions.remove(4)
    for number in (3, 5):
        with pytest.raises(AdapterError, match="not made by servetune"):
            versions.remove(number)

    assert versions.numbers() == [3, 5]


def test_hidden_ones_can_come_back(base: Path) -> None:
    """Out of sight and back."""
    versions = Versions(base)
    versions.publish(3, marker(), None)

    hidden = versions.hide(4)
    assert versions.numbers() == [3]
    versions.show(hidden)

    assert versions.numbers() == [3, 4]


def test_remains_of_a_killed_tuner_are_swept_up(base: Path) -> None:
    """Half a version and one on its way out go with the next change; nothing else does."""
    for name in (".servetune-partial-7-4", ".servetune-removed-7-0-4", ".cache"):
        (base / name).mkdir()

    with Versions(base).locked():
        assert sorted(path.name for path in base.glob(".*")) == [".cache"]


def test_a_second_tuner_is_refused(base: Path) -> None:
    """The kernel frees the lock when its holder ends in whatever way."""
    with Versions(base).locked(), pytest.raises(Refused, match="another tuner"), Versions(base).locked():
        pass
    with Versions(base).locked():
        pass


@pytest.mark.parametrize("number", [4, -1])
def test_a_version_that_is_not_there(base: Path, number: int) -> None:
    """Names the folder: it may be another model's."""
    with pytest.raises(AdapterError, match="base_path"):
        Versions(base).batching(number)


def test_names_with_zeros(base: Path) -> None:
    """The server takes 007 for 7, and so do we."""
    (base / "007").mkdir()

    assert Versions(base).numbers() == [3, 7]
    assert Versions(base).batching(7) is None


def test_senseless_marker(base: Path) -> None:
    """A damaged one marks nothing."""
    (base / "3" / MARKER).write_text("{")

    assert Versions(base).marker(3) is None


def test_a_marker_that_cannot_be_read(base: Path) -> None:
    """Nobody knows whose version that is: it is not taken for the operator's."""
    versions = Versions(base)
    versions.publish(3, marker(), None)
    (base / "4" / MARKER).unlink()
    (base / "4" / MARKER).mkdir()

    with pytest.raises(AdapterError, match="cannot be read: Is a directory"):
        versions.marker(4)


def test_a_folder_that_cannot_be_locked(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal like any other."""

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(Refused, match="cannot be changed: Permission denied"), Versions(base).locked():
        pass


def test_a_version_that_is_removed_while_it_is_linked(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of its files that was missing says why."""

    def gone(*_: object, **__: object) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(os, "link", gone)

    with pytest.raises(
        Refused, match=r"cannot be made in \S+: \[Errno 2\] No such file or directory; the old"
    ):
        Versions(base).publish(3, marker(), None)
