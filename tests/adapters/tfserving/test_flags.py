"""What is said of a server whose flags cannot be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.adapters.live import backend as live
from tuner.adapters.metrics.page import MetricsPage
from tuner.adapters.tfserving import backend as tfserving
from tuner.adapters.tfserving.client import TFServingClient, VersionState, VersionStatus

FLAGS = "--enable_batching --enable_per_model_batching_parameters, which could not be checked"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model on a server whose process cannot be seen, as behind ``docker -p``."""
    (tmp_path / "1").mkdir()
    monkeypatch.setattr(live, "local_cores", lambda *_: None)
    monkeypatch.setattr(live, "listening_processes", lambda *_: ())
    monkeypatch.setattr(TFServingClient, "versions", lambda _: {1: VersionStatus(VersionState.AVAILABLE, "")})
    monkeypatch.setattr(MetricsPage, "fetch", lambda *_: "")
    return tmp_path


def notes(options: str) -> tuple[str, ...]:
    """What a description of a target says."""
    backend = tfserving.TFServingBackend(f"tfserving://far/mlp?rest=8501{options}")
    try:
        return backend.describe().notes
    finally:
        backend.close()


def test_flags_that_could_not_be_checked_are_named(base: Path) -> None:
    """Without them the server ignores what is changed, and every change looks like noise."""
    assert any(note.endswith(FLAGS) for note in notes(f"&base_path={base}"))


def test_flags_that_can_be_seen_need_no_note(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked."""
    on = {"port": "8500", "enable_batching": "", "enable_per_model_batching_parameters": ""}
    monkeypatch.setattr(tfserving, "read_flags", lambda _: on)

    assert not any(FLAGS in note for note in notes(f"&base_path={base}"))


def test_flags_matter_only_where_something_is_changed(base: Path) -> None:
    """Not of a model that is only observed."""
    assert not any(FLAGS in note for note in notes(""))
