"""The knobs of a version folder, against a server that serves what the folder has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.folders import Versions
from tuner.adapters.tfserving.versions.knobs import VersionKnobs
from tuner.adapters.tfserving.versions.steering import Steering

WANTED = {"max_batch_size": 8.0, "batch_timeout": 0.001}


class Server:
    """Serves the newest version of a folder, at once."""

    def __init__(self, base: Path) -> None:
        self._folder = Versions(base)

    def serving(self) -> int:
        return max(self._folder.numbers())

    def versions(self) -> dict[int, VersionStatus]:
        return {self.serving(): VersionStatus(VersionState.AVAILABLE, "")}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    deploy(tmp_path, 1)
    return tmp_path


def deploy(base: Path, number: int) -> None:
    """Add a version of the operator's."""
    (base / str(number)).mkdir()
    (base / str(number) / "saved_model.pb").touch()


def test_where_nothing_can_be_changed_there_is_nothing_to_restore(base: Path) -> None:
    """Such as a label without the file that moves it."""
    knobs = VersionKnobs(Server(base), Versions(base), None, 5.0)

    assert not knobs.restore()
